// OperatorService answers an operator's control messages over the daemon's sessions.
//
// Root and the daemon's own user see and end every sequence, and drain the daemon. Another user
// sees and ends the sequences of his own engines alone. A sequence of somebody else is answered as
// an unknown one. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/session/session_list.h"
#include "ipc/control/control.h"

namespace specd {

class OperatorService {
 public:
  struct Options {
    const SessionList* sessions = nullptr;
    Clock* clock = nullptr;
    std::function<void()> on_drain = [] {};  // called once
  };
  struct Caller {
    uint32_t uid = 0;
    // True for root and the daemon's own user.
    bool sees_all = false;
  };

  explicit OperatorService(Options options) : options_(std::move(options)) {}

  // REQUIRES: an operator's message.
  absl::StatusOr<Reply> Answer(const Request& request, const Caller& caller);

  // An error while the daemon drains: nothing is opened any more.
  absl::Status CheckOpens() const;
  // True once the daemon drains and no sequence runs.
  bool IsDrained() const { return drains_.load() && CountRunning() == 0; }

 private:
  SessionList::Snapshot SessionsOf(const Caller& caller) const;
  uint32_t CountRunning() const;
  absl::StatusOr<Reply> On(const ListSequencesRequest& request, const Caller& caller) const;
  absl::StatusOr<Reply> On(const AbortStreamsRequest& request, const Caller& caller) const;
  absl::StatusOr<Reply> On(const DrainRequest& request, const Caller& caller);
  absl::StatusOr<Reply> On(const DumpSessionRequest& request, const Caller& caller) const;
  absl::StatusOr<Reply> On(const ListSessionsRequest& request, const Caller& caller) const;

  const Options options_;
  std::atomic<bool> drains_{false};
};

}  // namespace specd
