#include "tests/gpu/ptx/machine/device_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

namespace specd::ptx {

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kAlignment = 256;  // as cudaMalloc promises
// Longer blocks are those of rows, which are written before they are read.
constexpr size_t kMostPoisonBytes = size_t{16} << 20;
constexpr uint32_t kPoison = 0xFFBEADDEu;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Takes address space alone: pages come when they are touched.
void* Map(size_t size_bytes, int protection) {
  void* const mapping =
      mmap(nullptr, size_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapping == MAP_FAILED ? nullptr : mapping;
}

class Registry {
 public:
  static Registry& Get() {
    static Registry* const registry = new Registry;  // blocks of static objects outlive main
    return *registry;
  }

  MemoryRange* Add(uint64_t begin, uint64_t size_bytes) {
    const size_t shadow_bytes = ShadowBytes(size_bytes);
    auto* const cells = static_cast<ShadowCell*>(Map(shadow_bytes, PROT_READ | PROT_WRITE));
    if (cells == nullptr) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    ranges_.push_back({begin, begin + size_bytes, cells});
    MemoryRange* const range = &ranges_.back();
    by_begin_[begin] = range;
    return range;
  }

  void Remove(MemoryRange* range) {
    const std::lock_guard<std::mutex> lock(mutex_);
    munmap(range->cells, ShadowBytes(range->end - range->begin));
    by_begin_.erase(range->begin);
    *range = {};
  }

  const MemoryRange* Find(uint64_t address, uint64_t size_bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = by_begin_.upper_bound(address);
    if (found == by_begin_.begin()) return nullptr;
    --found;
    return found->second->Holds(address, size_bytes) ? found->second : nullptr;
  }

  std::string Describe(uint64_t address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto next = by_begin_.upper_bound(address);
    std::string text;
    if (next != by_begin_.begin()) {
      const MemoryRange& range = *std::prev(next)->second;
      const uint64_t size_bytes = range.end - range.begin;
      text = address < range.end
                 ? fmt::format("byte {} of a block of {}", address - range.begin, size_bytes)
                 : fmt::format("{} bytes behind the end of a block of {}", address - range.end,
                               size_bytes);
    }
    if (next != by_begin_.end()) {
      text +=
          fmt::format("{}{} bytes before a block", text.empty() ? "" : ", ", next->first - address);
    }
    return text.empty() ? "there is no block" : text;
  }

  void ClearShadows() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [begin, range] : by_begin_) {
      madvise(range->cells, ShadowBytes(range->end - range->begin), MADV_DONTNEED);
    }
  }

 private:
  static size_t ShadowBytes(uint64_t size_bytes) {
    const uint64_t num_cells = (size_bytes + kCellBytes - 1) / kCellBytes;
    return RoundUp(std::max<uint64_t>(num_cells, 1) * sizeof(ShadowCell), kPageBytes);
  }

  std::mutex mutex_;
  std::deque<MemoryRange> ranges_;
  std::map<uint64_t, MemoryRange*> by_begin_;
};

}  // namespace

DeviceBlock::DeviceBlock(size_t size_bytes) : size_bytes_(size_bytes) {
  const size_t used_bytes = RoundUp(std::max<size_t>(size_bytes, 1), kAlignment);
  const size_t inner_bytes = RoundUp(used_bytes, kPageBytes);
  mapping_bytes_ = inner_bytes + 2 * kPageBytes;
  mapping_ = Map(mapping_bytes_, PROT_NONE);
  if (mapping_ == nullptr) return;
  std::byte* const inner = static_cast<std::byte*>(mapping_) + kPageBytes;
  if (mprotect(inner, inner_bytes, PROT_READ | PROT_WRITE) != 0) return;
  // The end lies at the end of a page: most wrong accesses are behind it.
  std::byte* const begin = inner + inner_bytes - used_bytes;
  for (size_t i = 0; i < std::min(used_bytes, kMostPoisonBytes); i += sizeof(kPoison)) {
    std::memcpy(begin + i, &kPoison, sizeof(kPoison));
  }
  range_ = Registry::Get().Add(reinterpret_cast<uint64_t>(begin), size_bytes);
  if (range_ != nullptr) begin_ = begin;
}

DeviceBlock::~DeviceBlock() {
  if (range_ != nullptr) Registry::Get().Remove(range_);
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

const MemoryRange* FindDeviceMemory(uint64_t address, uint64_t size_bytes) {
  return Registry::Get().Find(address, size_bytes);
}

std::string DescribeAddress(uint64_t address) { return Registry::Get().Describe(address); }

void ClearShadows() { Registry::Get().ClearShadows(); }

}  // namespace specd::ptx
