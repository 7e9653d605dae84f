// CopyArena gives out pieces of the memory of a RoundCopy one after the other. Without memory it
// only counts.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace specd {

class CopyArena {
 public:
  explicit CopyArena(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* Take(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kArenaAlign);
    used_ = (used_ + kArenaAlign - 1) / kArenaAlign * kArenaAlign;
    std::byte* const place = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += count * sizeof(T);
    return reinterpret_cast<T*>(place);
  }
  // A copy of `count` elements; null if `from` is null.
  template <class T>
  const T* Copy(const T* from, int64_t count) {
    if (from == nullptr) return nullptr;
    T* const to = Take<T>(static_cast<size_t>(count));
    if (to != nullptr) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    return to;
  }

  bool counts_only() const { return memory_ == nullptr; }
  uint64_t used() const { return used_; }

 private:
  static constexpr uint64_t kArenaAlign = 16;

  std::byte* const memory_;
  uint64_t used_ = 0;
};

}  // namespace specd
