// VerifyLoop polls and serves every session, on the verify thread. If there is no work, it sleeps
// on all their doorbells.
//
// The loop does nothing slow: no sending, no disk, no allocation per round. A long round runs in
// pieces of some milliseconds, and between two of them the loop serves every other session. When
// the loop stops, it answers a round that has pieces left without running them. A round on a CUDA
// stream is taken only once its rows are ready. Until then the loop prepares it, about a
// millisecond at a time. A slow engine, or one that never gets there, delays no other. The device
// rings no bell. While such a round is held, the loop looks again after pauses that grow with the
// wait. One thread calls Run (or, in a test, Step); any thread may call Wake and Stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "daemon/metrics/meters.h"
#include "daemon/session/session_list.h"
#include "ipc/segment/doorbell.h"

namespace specd {

class VerifyLoop {
 public:
  struct Options {
    int64_t spin_ns = 0;
    // The verify thread calls the first at most once, and the second at most once per session.
    std::function<void(std::string_view why)> on_device_failure;
    std::function<void(Session&, ChannelFault)> on_channel_fault;
    // At most once per session, too; may be null.
    std::function<void(Session&)> on_missing_page = nullptr;
    // The loop has nothing to do after work whose events it has queued. May be null.
    std::function<void()> on_events = nullptr;
    VerifyMeters* meters = nullptr;  // which outlive the loop; null: those of its own
    // Called before the loop sleeps without any round under way; may be null. has_worked: rounds
    // have run since the last call.
    std::function<void(bool has_worked)> on_idle = nullptr;
  };

  VerifyLoop(const SessionList* sessions, Options options);

  // Looks once at every session, and serves at most one round of each, or one piece of a long
  // round; true if any had work.
  bool Step();

  // Steps until Stop; then answers the rounds that have been submitted (within bounds) and returns.
  void Run();

  void Stop();
  // The caller has changed the list of sessions.
  void Wake() { Doorbell(&own_bell_).Ring(); }

 private:
  bool ServeOne(Session& session);
  void ReportMissingPage(Session& session);
  bool HasWork() const;
  bool HasRounds() const;
  void TellEvents();
  size_t CountHeld() const;
  void TellIdle();
  void Sleep();
  void Drain();

  const SessionList* const sessions_;
  const Options options_;
  VerifyMeters own_meters_;
  VerifyMeters& meters_;
  std::atomic<bool> stop_{false};
  DoorbellLine own_bell_{};

  // Owned by the verify thread.
  uint64_t version_ = 0;
  SessionList::Snapshot snapshot_;
  std::vector<Doorbell> bells_;
  bool blocked_ = false;     // a session has a submission that it could not take yet
  bool yields_ = false;      // a thread waits for the lock of a session that is between two pieces
  size_t num_held_ = 0;      // sessions whose next round waits for its rows
  absl::Duration held_for_;  // since num_held_ changed, or a round was answered
  bool has_worked_ = false;  // since on_idle was called
  bool reported_failure_ = false;
  bool owes_events_ = false;  // there was work since the last call of on_events
};

}  // namespace specd
