#include "tests/gpu/ptx/machine/warp_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

namespace {

constexpr size_t kAllLocalBytes = kLocalStride * kLanes;

void* Map(size_t size_bytes) {
  void* const mapping = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) std::abort();  // no address space: nothing can go on
  return mapping;
}

std::vector<std::unique_ptr<WarpMemory>>& Unused() {
  // A launch may run on another thread while the program ends.
  static auto* const unused = new std::vector<std::unique_ptr<WarpMemory>>;
  return *unused;
}

}  // namespace

WarpMemory::WarpMemory()
    : registers_(static_cast<std::byte*>(Map(kRegisterArenaBytes))),
      local_(static_cast<std::byte*>(Map(kAllLocalBytes))),
      marks_(static_cast<uint8_t*>(Map(kAllLocalBytes))) {}

WarpMemory::~WarpMemory() {
  munmap(registers_, kRegisterArenaBytes);
  munmap(local_, kAllLocalBytes);
  munmap(marks_, kAllLocalBytes);
}

std::unique_ptr<WarpMemory> TakeWarpMemory() {
  if (Unused().empty()) return std::make_unique<WarpMemory>();
  std::unique_ptr<WarpMemory> memory = std::move(Unused().back());
  Unused().pop_back();
  return memory;
}

void GiveWarpMemoryBack(std::unique_ptr<WarpMemory> memory) {
  Unused().push_back(std::move(memory));
}

}  // namespace specd::ptx
