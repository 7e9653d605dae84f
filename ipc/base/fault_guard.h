// FaultGuard keeps a process alive whose read of an engine's memory finds no page, for Region.
//
// A page of a sealed memfd may still be missing when it is read: the engine can make holes, and no
// huge page, no memory for a file of the strict kind, or no healthy memory may be left for one. The
// kernel then sends SIGBUS to the thread that reads. The handler puts pages of zeros in the place
// of the whole mapping, so that the read goes on, and sets the flag of its owner. What was read
// since is worth nothing; the owner looks at the flag before it uses it. A SIGBUS anywhere else
// ends the process as it does without the handler. Guards are made and destroyed by any thread.
//
//   FaultGuard::Install();                       // a daemon, at its start
//   FaultGuard guard({data, size_bytes, true}, &flag);   // while the mapping exists
#pragma once

#include <atomic>
#include <cstddef>

namespace specd {

class FaultGuard {
 public:
  struct Memory {
    void* data = nullptr;  // page-aligned, and the pages are whole
    size_t size_bytes = 0;
    bool is_writable = false;
  };

  // Sets the process's handler of SIGBUS. Without it guards do nothing: a library leaves the
  // handlers of its process alone.
  static void Install();

  // The flag outlives the guard.
  FaultGuard(const Memory& memory, std::atomic<bool>* has_faulted);
  FaultGuard(FaultGuard&& other) noexcept;
  FaultGuard& operator=(FaultGuard&& other) noexcept;
  ~FaultGuard();

  struct Range;

 private:
  Range* range_;  // null after a move
};

}  // namespace specd
