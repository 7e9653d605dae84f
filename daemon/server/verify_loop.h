// VerifyLoop: the verify thread's work. Polls every session, answers what it finds, sleeps on all
// their doorbells when there is nothing.
//
// Nothing slow happens here: no sending, no disk, no allocation per round. A round on a stream is
// taken only once its rows are ready, so an engine that is slow, or never gets there, holds up
// nobody; the device rings no bell, so while such a round is held the loop looks again after
// pauses that grow with the wait. One thread calls Run (or, in a test, Step); Wake and Stop may be
// called from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "daemon/session/session_list.h"
#include "ipc/segment/doorbell.h"

namespace specd {

class VerifyLoop {
 public:
  struct Options {
    int64_t spin_ns = 0;
    // Called from the verify thread, once each.
    std::function<void(std::string_view why)> on_device_failure;
    std::function<void(Session&, ChannelFault)> on_channel_fault;
  };

  VerifyLoop(const SessionList* sessions, Options options);

  // One look at every session, one round of each at most; true if any had work.
  bool Step();

  // Until Stop; then answers what has been submitted (within bounds) and returns.
  void Run();

  void Stop();
  // The list of sessions has changed.
  void Wake() { Doorbell(&own_bell_).Ring(); }

 private:
  bool ServeOne(Session& session);
  bool HasWork() const;
  bool HasRounds() const;
  size_t CountHeld() const;
  void Sleep();
  void Drain();

  const SessionList* const sessions_;
  const Options options_;
  std::atomic<bool> stop_{false};
  DoorbellLine own_bell_{};

  // Owned by the verify thread.
  uint64_t version_ = 0;
  SessionList::Snapshot snapshot_;
  std::vector<Doorbell> bells_;
  bool blocked_ = false;     // a submission is there that its session could not take yet
  size_t num_held_ = 0;      // sessions whose next round waits for its rows
  absl::Duration held_for_;  // since that number changed, or a round was answered
  bool reported_failure_ = false;
};

}  // namespace specd
