// watched_memory lets a test watch the memory that a thread takes and gives back, and makes an
// allocation fail.
//
// A program that is linked with watched_memory.cc has its operator new and delete, for all of the
// program. The count is of all threads, because a compile has a thread of its own; the watcher
// belongs to one thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace specd {

// The number of allocations that still succeed before one fails; below 0 all succeed. Only one
// thread of the program allocates meanwhile.
extern std::atomic<int> allocations_left;

class MemoryWatcher {
 public:
  virtual ~MemoryWatcher() = default;
  // Both are called before the memory changes hands. The sizes are of the block that malloc made,
  // or what was asked for. Memory that these two functions take or give back is not reported.
  virtual void OnNew(size_t size_bytes) = 0;
  virtual void OnDelete(size_t size_bytes) = 0;
};

// Null: memory of this thread is not watched.
extern thread_local MemoryWatcher* memory_watcher;

}  // namespace specd
