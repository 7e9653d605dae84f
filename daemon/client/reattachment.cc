#include "daemon/client/reattachment.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(10);  // between two tries
// A round may end every daemon that runs it.
constexpr uint32_t kUnansweredMax = 5;

absl::Status Gone(std::string text) {
  return MakeError(SPECD_ERROR_DISCONNECTED, "", std::move(text));
}

// The daemon has still to see that the connection of an earlier try has gone.
bool IsTokenTaken(const absl::Status& status) {
  return ErrorCodeOf(status) == SPECD_ERROR_STATE && ErrorFieldOf(status) == "join_token";
}

uint64_t BoundOutputsOf(const Segment& segment) {
  // Pairs with the release in DaemonChannel::SetBoundOutputs.
  return segment.page()->daemon.bound_outputs.load(std::memory_order_acquire);
}

}  // namespace

bool Reattachment::MayHelp(const absl::Status& status) {
  const int code = ErrorCodeOf(status);
  return code == SPECD_ERROR_DISCONNECTED || code == SPECD_ERROR_SHUTDOWN;
}

absl::StatusOr<bool> Reattachment::Try(EngineChannel* channel) {
  if (!refusal_.ok()) return refusal_;
  if (channel->awaits_stream_answer()) {
    return MakeError(SPECD_ERROR_STATE, "cuda_stream",
                     "the daemon is gone, and rounds on CUDA streams are in flight; poll for their "
                     "completions, then call again");
  }
  if (let_go_) let_go_();
  const int64_t now_ns = Clock::Real()->NowNs();
  if (now_ns < next_try_ns_) return false;
  if (lost_ns_ == 0) lost_ns_ = now_ns;
  if (num_unanswered_ >= kUnansweredMax) {
    refusal_ =
        Gone(fmt::format("{} daemons in a row ended before they had answered anything; look "
                         "into their logs, then attach again",
                         kUnansweredMax));
    return refusal_;
  }
  absl::Status status = AttachInTime(*channel);
  if (status.ok()) status = CheckRanks();
  if (!status.ok()) {
    // No round on a CUDA stream begins until the engine goes on.
    if (next_.has_value()) channel->SetDaemonGone();
    return GiveUpOrWait(status);
  }
  MoveTo(channel);
  return true;
}

absl::Status Reattachment::AttachInTime(const EngineChannel& channel) {
  if (next_.has_value()) {
    link_.SetHeld(false);
    if (!link_.PeerGone()) return absl::OkStatus();
    awaited_ |= BoundOutputsOf(*next_);
    next_.reset();
  }
  absl::Status status = Attach(channel, false);
  if (status.ok() || !record_.waits_for_sequence() ||
      Clock::Real()->NowNs() - lost_ns_ < reconnect_ns_) {
    return status;
  }
  // What one sequence still lacks is its own failure, and not the engine's.
  link_.Drop();
  return Attach(channel, true);
}

absl::StatusOr<bool> Reattachment::GiveUpOrWait(const absl::Status& status) {
  const int64_t end_ns = Clock::Real()->NowNs();
  next_try_ns_ = end_ns + absl::ToInt64Nanoseconds(kPause);
  const bool is_over = end_ns - (next_.has_value() ? told_ns_ : lost_ns_) >= reconnect_ns_;
  if (next_.has_value() && !is_over) {
    link_.SetHeld(true);
    return false;
  }
  // A daemon that knows a part of the session is none that calls may go to.
  SayClosing();
  link_.Drop();
  const int64_t reconnect_ms = reconnect_ns_ / 1'000'000;
  if (next_.has_value()) {
    refusal_ = MakeError(
        SPECD_ERROR_DISCONNECTED, "rank",
        fmt::format("the daemon is gone, and at the next one {} within reconnect_ms = {}; look why "
                    "that process has ended or waits, then attach again with new ranks",
                    std::string(status.message()), reconnect_ms));
    next_.reset();
  } else if (!IsForNow(status) && !IsTokenTaken(status)) {
    refusal_ =
        Gone(fmt::format("the daemon is gone, and the next one does not take this engine: "
                         "{}; attach again",
                         std::string(status.message())));
  } else if (is_over) {
    refusal_ =
        Gone(fmt::format("the daemon is gone, and none took this engine within "
                         "reconnect_ms = {}: {}; start it and attach again",
                         reconnect_ms, std::string(status.message())));
  }
  if (!refusal_.ok()) return refusal_;
  return false;
}

absl::StatusOr<bool> Reattachment::AwaitUntil(EngineChannel* channel, Deadline deadline) {
  for (;;) {
    const absl::StatusOr<bool> attached = Try(channel);
    if (!attached.ok() || *attached) return attached;
    if (deadline.HasPassed()) return false;
    absl::SleepFor(kPause);
  }
}

absl::Status Reattachment::Attach(const EngineChannel& channel, bool is_last) {
  record_.BeginTelling(is_last);
  if (absl::Status status = link_.Reconnect(); !status.ok()) {
    // No socket is there yet. In an answer the code would say that something else is missing.
    return ErrorCodeOf(status) == SPECD_ERROR_NOT_FOUND ? Gone(std::string(status.message()))
                                                        : status;
  }
  hello_.owner = record_.owner();
  hello_.generation = record_.generation();
  UniqueFd segment_fd;
  const absl::StatusOr<HelloReply> reply = Expect<HelloReply>(link_.Call(hello_, -1, &segment_fd));
  if (!reply.ok()) return reply.status();
  // It has ended this session for a reason, which would come again.
  if (reply->daemon_epoch == segment_.identity().daemon_epoch) {
    return MakeError(SPECD_ERROR_STATE, "", "the same daemon has ended the session before");
  }
  absl::StatusOr<Segment> fresh = Segment::Attach(std::move(segment_fd));
  if (!fresh.ok()) return fresh.status();
  const absl::Status mapped = Expect<OkReply>(link_.Call(MappedRequest{}, -1, nullptr)).status();
  if (!mapped.ok()) return mapped;
  if (absl::Status status = record_.Tell(&link_, channel); !status.ok()) {
    awaited_ |= BoundOutputsOf(*fresh);
    return status;
  }
  next_ = *std::move(fresh);
  told_ns_ = Clock::Real()->NowNs();
  return absl::OkStatus();
}

absl::Status Reattachment::CheckRanks() const {
  const uint64_t missing = (BoundOutputsOf(segment_) | awaited_) & ~BoundOutputsOf(*next_);
  if (missing == 0) return absl::OkStatus();
  std::vector<int> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    if ((missing >> 8 * rank & 0xff) != 0) ranks.push_back(rank);
  }
  return MakeError(
      SPECD_ERROR_DISCONNECTED, "rank",
      ranks.size() == 1
          ? fmt::format("rank {} has not joined and bound its slot outputs again", ranks[0])
          : fmt::format("ranks {} have not joined and bound their slot outputs again",
                        absl::StrJoin(ranks, ", ")));
}

void Reattachment::SayClosing() {
  if (!next_.has_value()) return;
  // Followed by the hang-up, after which the daemon looks (DaemonChannel::WasEngineReady).
  next_->page()->engine.state.store(static_cast<uint32_t>(EngineState::kClosing),
                                    std::memory_order_release);
}

void Reattachment::MoveTo(EngineChannel* channel) {
  std::swap(segment_, *next_);
  channel->MoveFrom(*next_);
  channel->SetState(EngineState::kRunning);
  next_.reset();
  awaited_ = 0;
  lost_ns_ = 0;
  ++num_reattached_;
  if (channel->awaits_answers()) ++num_unanswered_;
}

}  // namespace specd
