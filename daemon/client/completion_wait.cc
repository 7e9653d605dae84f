#include "daemon/client/completion_wait.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "daemon/base/clock.h"
#include "ipc/base/error.h"

namespace specd {
namespace {

// A staged round is spun for about as long as a short forward takes. Then come pauses that grow
// with the wait.
constexpr int64_t kGraphSpinNs = 1'000'000;
constexpr int64_t kPauseMinNs = 50'000;
constexpr int64_t kPauseMaxNs = 1'000'000;

// Spinning takes a core from the engine or the daemon, unless there is one to spare.
int64_t MaxSpinNs(int32_t spin_us) {
  constexpr int64_t kMaxSpinNs = 2'000'000;
  if (spin_us >= 0) return int64_t{spin_us} * 1000;
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return 0;
  return CPU_COUNT(&usable) > 2 ? kMaxSpinNs : 0;
}

}  // namespace

CompletionWait::CompletionWait(EngineLink* link, EngineChannel* channel, int32_t spin_us)
    : link_(*link), channel_(*channel), spin_(MaxSpinNs(spin_us)) {}

absl::Status CompletionWait::WhyNone() const {
  if (channel_.fault() != ChannelFault::kNone) {
    return MakeError(
        SPECD_ERROR_INTERNAL, "",
        fmt::format("the shared memory of the session is damaged ({}); close and attach "
                    "again",
                    ChannelFaultName(channel_.fault())));
  }
  const DaemonState state = channel_.daemon_state();
  if (link_.PeerGone() && (state == DaemonState::kRunning || !channel_.daemon_was_drained())) {
    return MakeError(SPECD_ERROR_DISCONNECTED, "",
                     "the daemon is gone; rounds in flight will not complete. Start it and attach "
                     "again");
  }
  return MakeError(SPECD_ERROR_SHUTDOWN, "",
                   "the daemon is shutting down and takes no new rounds; finish and close");
}

bool CompletionWait::Step(int timeout_ms) {
  const int64_t begin_ns = Clock::Real()->NowNs();
  while (!channel_.HasCompletion()) {
    const bool has_worked = link_.StepPiece();
    // The verifier runs in this thread; once it has no work, waiting would bring nothing. A CUDA
    // graph is the exception: the device does its work, and rings no bell.
    if (!has_worked && (!channel_.in_flight() || !are_staged_)) return false;
    const int64_t waited_ns = Clock::Real()->NowNs() - begin_ns;
    // The round stays between two pieces, and the next poll goes on with it.
    if (timeout_ms >= 0 && waited_ns >= int64_t{timeout_ms} * 1'000'000) {
      return channel_.HasCompletion();
    }
    if (has_worked) continue;
    if (waited_ns < kGraphSpinNs) {
      sched_yield();
    } else {
      absl::SleepFor(absl::Nanoseconds(std::clamp(waited_ns / 8, kPauseMinNs, kPauseMaxNs)));
    }
  }
  return true;
}

bool CompletionWait::Wait(int timeout_ms) {
  if (link_.is_embedded()) return Step(timeout_ms);
  if (channel_.HasCompletion()) {
    waited_ns_ = 0;
    return true;
  }
  const int64_t begin_ns = Clock::Real()->NowNs();
  const bool has_come = Sleep(timeout_ms, spin_.NextNs() - waited_ns_);
  waited_ns_ += Clock::Real()->NowNs() - begin_ns;
  if (has_come) spin_.Took(std::exchange(waited_ns_, 0));
  return has_come;
}

bool CompletionWait::Sleep(int timeout_ms, int64_t spin_ns) {
  int64_t left_ms = timeout_ms < 0 ? INT64_MAX : timeout_ms;
  while (!channel_.HasCompletion()) {
    if (left_ms == 0 || !channel_.in_flight() || link_.PeerGone()) return false;
    // Only ring entries are still missing, and a stopped daemon gives none back.
    if (timeout_ms < 0 && !channel_.awaits_answers()) return false;
    const int64_t slice_ms = std::min<int64_t>(left_ms, kLookMs);
    channel_.WaitCompletion({spin_ns, absl::Milliseconds(slice_ms)});
    spin_ns = 0;  // only the first slice of a wait looks
    left_ms -= timeout_ms < 0 ? 0 : slice_ms;
    if (channel_.daemon_state() == DaemonState::kStopped && !channel_.HasCompletion()) return false;
  }
  return true;
}

absl::StatusOr<bool> CompletionWait::Take(int timeout_ms, CompletionView* view) {
  const bool waited_in_vain = !Wait(timeout_ms);
  // This question comes before the last look into the ring. Answers that a daemon gave before it
  // ended are still there.
  const bool over =
      waited_in_vain && (channel_.daemon_state() == DaemonState::kStopped || link_.PeerGone());
  // If only the control channel timed out, the daemon may still answer.
  if (over && (channel_.daemon_state() == DaemonState::kStopped || link_.HungUp())) {
    channel_.SetDaemonGone();
  }
  if (channel_.Poll(view)) {
    if (!view->malformed) return true;
    return MakeError(SPECD_ERROR_INTERNAL, "",
                     view->kind == SubmissionKind::kRound ? "the daemon could not read the round"
                                                          : "the daemon could not read the call");
  }
  if (over || channel_.fault() != ChannelFault::kNone) return WhyNone();
  return false;
}

}  // namespace specd
