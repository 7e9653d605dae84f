// MaskWords are the words of one mask, in memory of large pages.
//
// A mask of a large vocabulary is 16 KB, and each new one lies in memory that the process did not
// have before. On a virtual machine the first touch of a small page took 1.15 us, so the pages of a
// mask took longer than its bits. MaskMemory takes 2 MiB at a time, asks the kernel for one large
// page, and cuts it into rows of one size: .25 us a mask. A given row is taken again, and a block
// without rows goes back to the kernel. Safe from any thread.
//
//   auto words = std::make_shared<MaskWords>(num_words);  // all 0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace specd::grammar {

// The memory of all masks of the process.
class MaskMemory {
 public:
  // Throws std::bad_alloc.
  static void* Take(size_t size_bytes);
  // REQUIRES: `row` is of Take(size_bytes).
  static void Give(void* row, size_t size_bytes) noexcept;
  // Of the blocks that have rows or wait for them. Smaller and larger rows are not in blocks.
  static size_t block_bytes();
};

template <typename T>
struct MaskAllocator {
  using value_type = T;

  MaskAllocator() = default;
  template <typename U>
  MaskAllocator(const MaskAllocator<U>& /*other*/) {}  // NOLINT: allocators convert

  T* allocate(size_t size) { return static_cast<T*>(MaskMemory::Take(size * sizeof(T))); }
  void deallocate(T* row, size_t size) noexcept { MaskMemory::Give(row, size * sizeof(T)); }
  friend bool operator==(const MaskAllocator&, const MaskAllocator&) { return true; }
};

// One bit for each id: bit i % 32 of word i / 32.
using MaskWords = std::vector<uint32_t, MaskAllocator<uint32_t>>;

}  // namespace specd::grammar
