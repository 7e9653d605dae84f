// Reattachment takes an engine from a daemon that is gone to the next one at the same socket.
//
// The engine waits for a daemon up to specd_options.reconnect_ms, attaches, and tells it everything
// again (SessionRecord). It then waits as long again until its ranks have joined again, because
// rounds write to them. At last it submits again what is in flight. The rows, masks and draft
// tokens of a round are the engine's until it has taken the answer, so they are still there, and
// the answer is the same. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/deadline.h"
#include "daemon/client/engine_link.h"
#include "daemon/client/session_record.h"
#include "ipc/segment/engine_channel.h"
#include "ipc/segment/segment.h"

namespace specd {

class Reattachment {
 public:
  // The pointers must outlive this object.
  Reattachment(EngineLink* link, Segment* segment, HelloRequest hello, uint32_t reconnect_ms)
      : link_(*link),
        segment_(*segment),
        hello_(std::move(hello)),
        reconnect_ns_(int64_t{reconnect_ms} * 1'000'000) {}

  ~Reattachment() { SayClosing(); }
  Reattachment(const Reattachment&) = delete;
  Reattachment& operator=(const Reattachment&) = delete;

  // Called when the daemon is gone, before the connection to the next one is made.
  void OnGone(std::function<void()> let_go) { let_go_ = std::move(let_go); }
  SessionRecord& record() { return record_; }
  // The token of the engine's ranks.
  void TellToken(const std::string& token) { hello_.join_token = token; }
  uint32_t num_reattached() const { return num_reattached_; }

  // True for an error that says no more than that the daemon is gone.
  static bool MayHelp(const absl::Status& status);
  // Tries once. True: the engine is attached, and what was in flight is submitted again. False: no
  // daemon takes the engine yet; try again later. An error: none will.
  absl::StatusOr<bool> Try(EngineChannel* channel);
  // Tries until the engine is attached.
  absl::Status Await(EngineChannel* channel) {
    return AwaitUntil(channel, Deadline::Never()).status();
  }
  // The same; false if the deadline comes first.
  absl::StatusOr<bool> AwaitUntil(EngineChannel* channel, Deadline deadline);
  // The engine takes the answer to a round or a call.
  void Took(const CompletionView& view) {
    num_unanswered_ = 0;
    record_.AddResults(view);
  }

 private:
  // Says hello to the next daemon and tells it everything: next_. `is_last`: a sequence that the
  // daemon does not take now has failed.
  absl::Status Attach(const EngineChannel& channel, bool is_last);
  // The same; at the end of the time, with is_last if that helps.
  absl::Status AttachInTime(const EngineChannel& channel);
  // OK: the ranks have bound what was bound at the daemons before.
  absl::Status CheckRanks() const;
  // The engine goes on at the next daemon.
  void MoveTo(EngineChannel* channel);
  // The engine does not come any more: the daemon in next_ tells its ranks.
  void SayClosing();
  // The status of a try that has failed: false if another one may succeed, else why none will.
  absl::StatusOr<bool> GiveUpOrWait(const absl::Status& status);

  EngineLink& link_;
  Segment& segment_;
  HelloRequest hello_;
  const int64_t reconnect_ns_;
  std::function<void()> let_go_;
  SessionRecord record_;
  int64_t lost_ns_ = 0;  // when the daemon was missed; 0: the engine is attached
  int64_t told_ns_ = 0;  // when the daemon of next_ knew everything
  int64_t next_try_ns_ = 0;
  uint32_t num_reattached_ = 0;
  uint32_t num_unanswered_ = 0;  // daemons in a row that have answered nothing
  absl::Status refusal_;         // once no daemon will take the engine
  // The segment of a daemon that has been told everything, while the engine waits for its ranks.
  // The link is held.
  std::optional<Segment> next_;
  // Slot outputs that ranks bound at daemons where the engine did not go on (BoundOutputsOf).
  uint64_t awaited_ = 0;
};

}  // namespace specd
