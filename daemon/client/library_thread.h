// LibraryThread runs a function of libspecd in a thread of its own, until it is stopped.
//
// The thread gets no signals: those of the engine are for the engine's own threads. One thread
// starts and stops it.
#pragma once

#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "ipc/base/unique_fd.h"

namespace specd {

class LibraryThread {
 public:
  LibraryThread() = default;
  ~LibraryThread() { Stop(); }
  LibraryThread(const LibraryThread&) = delete;
  LibraryThread& operator=(const LibraryThread&) = delete;

  // `run` returns once stop_fd() is readable. `field` and `what` are for the error.
  absl::Status Start(const char* field, const char* what, std::function<void()> run);
  // Waits for the end of `run`. May be called more than once.
  void Stop();
  int stop_fd() const { return stop_fd_.get(); }
  // True once Stop was called. Waits for nothing.
  bool is_stopping() const;

 private:
  UniqueFd stop_fd_;  // an eventfd
  std::thread thread_;
};

}  // namespace specd
