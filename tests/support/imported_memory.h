// Memory of a pretended device that another process owns: an engine's rows, as rounds are given
// them.
//
// Lives as long as the device is used. Not thread-safe.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "kernels/core/types.h"
#include "tests/support/fake_gpu_driver.h"

namespace specd {

class ImportedMemory {
 public:
  explicit ImportedMemory(FakeGpu* gpu) {
    gpu->is_imported = [this](const void* address) {
      for (const auto& [begin, size_bytes] : ranges_) {
        if (address >= begin && address <= static_cast<const char*>(begin) + size_bytes) {
          return true;
        }
      }
      return false;
    };
  }

  // The same rows on the device, `shift` elements behind a place that is aligned. What the copy
  // leaves around them is poison.
  TensorView Tensor(const TensorView& host, int64_t shift) {
    const int64_t element_bytes = SizeBytes(host.dtype);
    const int64_t bytes = ((host.num_rows - 1) * host.row_stride + host.vocab_size) * element_bytes;
    TensorView moved = host;
    moved.data = Copy(host.data, bytes, shift * element_bytes);
    moved.space = MemorySpace::kDevice;
    return moved;
  }
  MaskView Mask(const MaskView& host, int32_t vocab_size) {
    const int64_t words = (host.num_rows - 1) * host.row_stride + (vocab_size + 31) / 32;
    MaskView moved = host;
    moved.words = static_cast<const uint32_t*>(Copy(host.words, words * 4, 4));
    moved.space = MemorySpace::kDevice;
    return moved;
  }

  // What a test owns is the device's memory from now on.
  void Add(const void* begin, size_t size_bytes) { ranges_.emplace_back(begin, size_bytes); }

 private:
  const void* Copy(const void* host, int64_t size_bytes, int64_t shift_bytes) {
    std::vector<char> block(static_cast<size_t>(size_bytes + shift_bytes + 64), '\xdb');
    std::memcpy(block.data() + shift_bytes, host, static_cast<size_t>(size_bytes));
    blocks_.push_back(std::move(block));
    Add(blocks_.back().data(), blocks_.back().size());
    return blocks_.back().data() + shift_bytes;
  }

  std::vector<std::vector<char>> blocks_;
  std::vector<std::pair<const void*, size_t>> ranges_;
};

}  // namespace specd
