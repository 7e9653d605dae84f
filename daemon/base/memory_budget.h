// MemoryBudget bounds the memory that the daemon takes on behalf of its engines.
//
// The daemon has one budget, and each session has one under it, with that of its user between them
// (user_budgets.h). Memory is taken from the session's
// budget before it is allocated, so a request that is too large is refused and allocates nothing.
// The sizes are those of what may be used, even where pages are only touched later. Safe from any
// thread.
//
//   MemoryBudget all(bytes_max, "memory_mib");
//   MemoryBudget one(session_bytes_max, "session_memory_mib", &all);
//   absl::StatusOr<MemoryShare> share = one.Take("the prompt", 4096);   // given back with the
//   share
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd {

class MemoryBudget;

// Bytes that were taken from a budget, which outlives the share. A default share has none.
class MemoryShare {
 public:
  MemoryShare() = default;
  MemoryShare(MemoryShare&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  MemoryShare& operator=(MemoryShare&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~MemoryShare();

  uint64_t size_bytes() const { return size_bytes_; }

 private:
  friend class MemoryBudget;
  MemoryShare(MemoryBudget* budget, uint64_t size_bytes)
      : budget_(budget), size_bytes_(size_bytes) {}

  MemoryBudget* budget_ = nullptr;
  uint64_t size_bytes_ = 0;
};

class MemoryBudget {
 public:
  // `flag` is the daemon's flag that sets the bound, for errors. Its text and `whole` outlive the
  // budget.
  MemoryBudget(uint64_t bytes_max, std::string_view flag, MemoryBudget* whole = nullptr)
      : bytes_max_(bytes_max), flag_(flag), whole_(whole) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // EXHAUSTED, with the name of the flag, if fewer bytes are left here or in the whole. `what` is
  // the subject of the error's sentence.
  absl::StatusOr<MemoryShare> Take(std::string_view what, uint64_t size_bytes);

  uint64_t bytes_max() const { return bytes_max_; }
  std::string_view flag() const { return flag_; }
  uint64_t taken_bytes() const { return taken_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class MemoryShare;
  absl::Status Reserve(std::string_view what, uint64_t size_bytes);
  void GiveBack(uint64_t size_bytes);

  const uint64_t bytes_max_;
  const std::string_view flag_;
  MemoryBudget* const whole_;
  std::atomic<uint64_t> taken_bytes_{0};  // a sum that orders nothing
};

// What an allocation that failed says to the engine that asked for it.
absl::Status OutOfMemory();

// Takes from a budget that may be null: then nothing is bounded.
inline absl::StatusOr<MemoryShare> TakeMemory(MemoryBudget* budget, std::string_view what,
                                              uint64_t size_bytes) {
  return budget == nullptr ? MemoryShare() : budget->Take(what, size_bytes);
}

}  // namespace specd
