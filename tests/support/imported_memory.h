// Rows and arrays that lie on a device instead of in memory of the host.
//
// Live as long as the device is used. Not thread-safe.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "kernels/core/types.h"
#include "tests/support/fake_gpu_driver.h"

namespace specd {

// Copies on whatever device it is.
class MovedMemory {
 public:
  virtual ~MovedMemory() = default;

  // The same rows on the device, `shift` elements behind a place that is aligned.
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

  // Where the device writes ids that stand for these.
  virtual TokenId* Ids(TokenId* host, size_t count) = 0;

 protected:
  // `shift_bytes` behind a place that is aligned, with room of nobody's behind it.
  virtual const void* Copy(const void* host, int64_t size_bytes, int64_t shift_bytes) = 0;
};

// Memory of a pretended device that another process owns: an engine's, as rounds are given it. Ids
// are what the test has itself, which is the device's from then on.
class ImportedMemory final : public MovedMemory {
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

  TokenId* Ids(TokenId* host, size_t count) override {
    ranges_.emplace_back(host, count * sizeof(TokenId));
    return host;
  }

 private:
  // What the copy leaves around its rows is poison.
  const void* Copy(const void* host, int64_t size_bytes, int64_t shift_bytes) override {
    std::vector<char> block(static_cast<size_t>(size_bytes + shift_bytes + 64), '\xdb');
    std::memcpy(block.data() + shift_bytes, host, static_cast<size_t>(size_bytes));
    blocks_.push_back(std::move(block));
    ranges_.emplace_back(blocks_.back().data(), blocks_.back().size());
    return blocks_.back().data() + shift_bytes;
  }

  std::vector<std::vector<char>> blocks_;
  std::vector<std::pair<const void*, size_t>> ranges_;
};

}  // namespace specd
