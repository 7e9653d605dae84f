// WarpMemory is a warp's memory for registers of calls and for the local memory of its lanes.
//
// TakeWarpMemory hands out memory that an ended warp has given back. Local memory has a mark for
// each byte that was written; a call clears those of its own frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace specd::ptx {

inline constexpr size_t kRegisterArenaBytes = size_t{96} << 20;
inline constexpr size_t kLocalBytes = size_t{64} << 10;  // of a lane
// Lanes are three lines of the cache further apart: at a power of two, all 32 would share a set.
inline constexpr size_t kLocalStride = kLocalBytes + 192;

class WarpMemory {
 public:
  WarpMemory();
  WarpMemory(const WarpMemory&) = delete;
  WarpMemory& operator=(const WarpMemory&) = delete;
  ~WarpMemory();

  std::byte* registers() const { return registers_; }
  std::byte* LocalOf(uint32_t lane) const { return local_ + lane * kLocalStride; }
  uint8_t* MarksOf(uint32_t lane) const { return marks_ + lane * kLocalStride; }

 private:
  std::byte* registers_;
  std::byte* local_;
  uint8_t* marks_;
};

std::unique_ptr<WarpMemory> TakeWarpMemory();
void GiveWarpMemoryBack(std::unique_ptr<WarpMemory> memory);

}  // namespace specd::ptx
