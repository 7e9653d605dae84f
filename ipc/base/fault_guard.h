// FaultGuard keeps a process alive whose read of an engine's memory finds no page, for Region.
//
// Three causes leave a page of a sealed memfd missing: a hole, no free page (a huge page, or memory
// for a file of the strict kind), or a broken page. The kernel then sends SIGBUS to the thread that
// reads. The handler puts pages of zeros in the place of the whole mapping, and sets the flag of
// the mapping's owner. The read continues, but bytes read after that are void. The owner looks at
// the flag before it uses them. A SIGBUS anywhere else ends the process as it does without the
// handler. Guards are made and destroyed by any thread.
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
