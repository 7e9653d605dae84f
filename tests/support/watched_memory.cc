#include "tests/support/watched_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace specd {

std::atomic<int> allocations_left{-1};
thread_local MemoryWatcher* memory_watcher = nullptr;

namespace {

void* Take(size_t size_bytes) {
  if (MemoryWatcher* const watcher = std::exchange(memory_watcher, nullptr); watcher != nullptr) {
    watcher->OnNew(size_bytes);
    memory_watcher = watcher;
  }
  return std::malloc(size_bytes);
}

void GiveBack(void* memory) {
  if (MemoryWatcher* const watcher = std::exchange(memory_watcher, nullptr); watcher != nullptr) {
    if (memory != nullptr) watcher->OnDelete(malloc_usable_size(memory));
    memory_watcher = watcher;
  }
  std::free(memory);
}

}  // namespace
}  // namespace specd

// GCC takes a free() of what operator new gave for a mistake once both are inlined.
__attribute__((noinline)) void* operator new(size_t size_bytes) {
  const bool fails =
      specd::allocations_left.load() >= 0 && specd::allocations_left.fetch_sub(1) == 0;
  void* const memory = fails ? nullptr : specd::Take(size_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void* operator new(size_t size_bytes, const std::nothrow_t&) noexcept {
  return specd::Take(size_bytes);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { specd::GiveBack(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept {
  specd::GiveBack(memory);
}
