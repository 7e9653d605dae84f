// OpeningThreads handles long openings of sequences for ControlServer, each on a thread of its own.
//
// An opening with a million prompt ids takes a tenth of a second, and one with a new constraint may
// take seconds. The control thread serves the other engines meanwhile, and no opening waits for
// that of another engine. A connection has one at a time, so threads are no more than connections.
// Long compiles bound themselves (speculative/grammar/base/compile_turns.h). While an opening of a
// service runs, no other thread may call that service's Handle. One thread calls the public
// functions.
//
//   openings->Begin({.service = service, .message = message, .fds = std::move(fds)});
//   ...                                                    // openings->fd() becomes readable
//   for (OpeningThreads::Handled& handled : openings->TakeHandled()) Send(handled.answer);
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/session/control_service.h"
#include "ipc/base/unique_fd.h"

namespace specd {

// Tells whether a thread of its own handles the message. A prompt and the text of a constraint
// travel in a file beside the message; an opening without one and without a constraint is short. A
// trace waits for the disk. The session is asked for because only a Hello and a Join change a
// service, and the control thread looks at it while the other thread handles.
bool IsLong(const ControlService& service, std::span<const uint8_t> message,
            const std::vector<UniqueFd>& fds);

class OpeningThreads {
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

  static absl::StatusOr<std::unique_ptr<OpeningThreads>> Create();
  ~OpeningThreads() { Stop(); }
  OpeningThreads(const OpeningThreads&) = delete;
  OpeningThreads& operator=(const OpeningThreads&) = delete;

  // If the system gives no thread, the opening is refused. REQUIRES: Stop was not called.
  void Begin(Opening opening);

  // Readable while handled openings wait to be taken.
  int fd() const { return wake_.get(); }
  std::vector<Handled> TakeHandled();

  // Waits until no opening runs. Compiles are asked to give up (compile_cancel.h).
  void Stop();

 private:
  explicit OpeningThreads(UniqueFd wake) : wake_(std::move(wake)) {}
  void Handle(Opening& opening);
  void Finish(Handled handled);

  const UniqueFd wake_;  // an eventfd
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<Handled> handled_;  // guarded by mutex_
  size_t num_running_ = 0;        // guarded by mutex_
};

}  // namespace specd
