// OpeningPool handles long openings of sequences for ControlServer, on threads of its own.
//
// An opening with a million prompt ids takes a tenth of a second, and one with a new constraint may
// take seconds. The control thread serves the other engines meanwhile. The pool begins openings in
// the order in which they came. While it has an opening of a service, no other thread may call
// that service's Handle. One thread calls the public functions.
//
//   pool->Add({.service = service, .message = message, .fds = std::move(fds)});
//   ...                                                    // pool->fd() becomes readable
//   for (OpeningPool::Handled& handled : pool->TakeHandled()) Send(handled.answer);
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/session/control_service.h"
#include "ipc/base/unique_fd.h"

namespace specd {

class OpeningPool {
 public:
  struct Opening {
    ControlService* service = nullptr;  // lives until the opening is taken, or until Stop
    std::vector<uint8_t> message = {};
    std::vector<UniqueFd> fds = {};
  };
  struct Handled {
    ControlService* service = nullptr;
    ControlService::Answer answer = {};
  };

  static absl::StatusOr<std::unique_ptr<OpeningPool>> Create(size_t num_threads);
  ~OpeningPool() { Stop(); }
  OpeningPool(const OpeningPool&) = delete;
  OpeningPool& operator=(const OpeningPool&) = delete;

  // REQUIRES: Stop was not called.
  void Add(Opening opening);

  // Readable while handled openings wait to be taken.
  int fd() const { return wake_.get(); }
  std::vector<Handled> TakeHandled();

  // Discards the openings that no thread has begun, and waits for the others. A compilation by
  // specd's own engine is not interrupted; its limits bound this wait. One by a library is left
  // behind (speculative/grammar/slow_compile.h).
  void Stop();

 private:
  OpeningPool(UniqueFd wake, size_t num_threads);
  void Work();

  const UniqueFd wake_;  // an eventfd
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Opening> waiting_;   // guarded by mutex_
  std::vector<Handled> handled_;  // guarded by mutex_
  bool stopping_ = false;         // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace specd
