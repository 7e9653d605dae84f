// DeviceBlock is memory that kernels may reach, and FindDeviceMemory finds the block of an address.
//
// Host and device share one address space, as on every 64-bit Linux with CUDA. A block has shadow
// cells for the checks of races (race_checker.h), and inaccessible pages around it, so that an
// access of the host beside it ends the program. All functions are thread-safe, but no block may go
// while a launch runs.
//
//   DeviceBlock block(1024);
//   Store(block.begin());
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/gpu/ptx/machine/shadow.h"

namespace specd::ptx {

// Once made, a range stays where it is, for instructions that remember it. When its block is gone,
// it is empty for good: no other block takes it, because a launch may run while blocks are made.
struct MemoryRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  ShadowCell* cells = nullptr;

  bool Holds(uint64_t address, uint64_t size_bytes) const {
    return address >= begin && address < end && size_bytes <= end - address;
  }
  ShadowCell* CellOf(uint64_t address) const { return cells + (address - begin) / kCellBytes; }
};

class DeviceBlock {
 public:
  // The memory begins with a pattern that is no small number, no address and, as a float, a NaN. If
  // there is no memory, begin() is null.
  explicit DeviceBlock(size_t size_bytes);
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  ~DeviceBlock();

  std::byte* begin() const { return begin_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* begin_ = nullptr;
  size_t size_bytes_ = 0;
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  MemoryRange* range_ = nullptr;
};

// Null if the bytes do not lie in one block.
const MemoryRange* FindDeviceMemory(uint64_t address, uint64_t size_bytes);

// Where an address lies, for errors: "8 bytes behind a block of 1024 bytes".
std::string DescribeAddress(uint64_t address);

// Forgets every access, in all blocks.
void ClearShadows();

}  // namespace specd::ptx
