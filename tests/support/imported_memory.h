// MovedMemory puts rows and arrays on a device for tests. It lives as long as the device is used.
// Not thread-safe.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "kernels/core/types.h"
#include "tests/gpu/driver/fake_gpu_driver.h"

namespace specd {

// Copies on any device.
class MovedMemory {
 public:
  virtual ~MovedMemory() = default;

  // The same rows on the device, `shift` elements after an aligned address.
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

  // The array that the device writes instead of these ids.
  virtual TokenId* Ids(TokenId* host, size_t count) = 0;

 protected:
  // The copy starts `shift_bytes` after an aligned address, with unused room after it.
  virtual const void* Copy(const void* host, int64_t size_bytes, int64_t shift_bytes) = 0;
};

// Memory to which the ids are copied too. What the device wrote is brought back from there.
class CopiedMemory : public MovedMemory {
 public:
  TokenId* Ids(TokenId* host, size_t count) final {
    const auto bytes = static_cast<int64_t>(count * sizeof(TokenId));
    auto* const device = static_cast<TokenId*>(const_cast<void*>(Copy(host, bytes, 0)));
    ids_.push_back({host, device, bytes});
    return device;
  }

 protected:
  struct IdArray {
    TokenId* host;
    TokenId* device;
    int64_t size_bytes;
  };
  std::vector<IdArray> ids_;
};

// Memory of a fake device that another process owns: an engine's. Ids stay in the test's own array,
// which belongs to the device from then on.
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
  // The bytes around the copied rows are poison.
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
