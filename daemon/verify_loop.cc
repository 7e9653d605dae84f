#include "daemon/verify_loop.h"

#include <utility>

namespace specd {
namespace {

// Every wake has a bell; the timeouts only bound what a missed one could cost.
constexpr absl::Duration kSleep = absl::Milliseconds(50);
constexpr absl::Duration kSleepBlocked = absl::Milliseconds(1);
constexpr int32_t kDrainWaitsMax = 1000;  // of kSleepBlocked

}  // namespace

VerifyLoop::VerifyLoop(const SessionList* sessions, Options options)
    : sessions_(sessions), options_(std::move(options)) {}

bool VerifyLoop::Step() {
  if (sessions_->Refresh(&version_, &snapshot_)) {
    bells_.assign(1, Doorbell(&own_bell_));
    // Ended sessions stay listed until the publisher has drained them; nobody rings for them any
    // more, and only so are there never more bells than can be waited for.
    for (const auto& session : snapshot_) {
      if (!session->ended()) bells_.push_back(session->channel().submission_bell());
    }
  }
  bool worked = false;
  blocked_ = false;
  for (const auto& session : snapshot_) worked = ServeOne(*session) || worked;
  return worked;
}

bool VerifyLoop::ServeOne(Session& session) {
  if (!session.channel().HasSubmission()) return false;
  if (session.Step()) {
    if (session.device_failed() && !reported_failure_) {
      reported_failure_ = true;
      options_.on_device_failure();
    }
    return true;
  }
  blocked_ = true;
  if (const ChannelFault fault = session.channel().fault();
      fault != ChannelFault::kNone && session.End()) {
    options_.on_channel_fault(session, fault);
  }
  return false;
}

bool VerifyLoop::HasWork() const {
  if (stop_.load(std::memory_order_relaxed) || sessions_->version() != version_) return true;
  for (const auto& session : snapshot_) {
    if (session->channel().HasSubmission()) return true;
  }
  return false;
}

void VerifyLoop::Sleep() {
  if (blocked_) {
    // It waits for the publisher to make room (or to drop an ended session), and no bell says so.
    WaitAny({bells_.data(), 1}, {0, kSleepBlocked}, [] { return false; });
    return;
  }
  WaitAny(bells_, {options_.spin_ns, kSleep}, [this] { return HasWork(); });
}

void VerifyLoop::Run() {
  while (!stop_.load(std::memory_order_relaxed)) {
    if (!Step()) Sleep();
  }
  Drain();
}

void VerifyLoop::Drain() {
  // Every session is told that it drains, so at most a ring of rounds is left in each; an engine
  // that goes on all the same must not keep the daemon from ending. Rounds that wait for the
  // publisher get a bounded time.
  int32_t rounds_left = SessionLimits::kRingDepthMax;
  int32_t waits_left = kDrainWaitsMax;
  while (rounds_left > 0 && waits_left > 0) {
    if (Step()) {
      --rounds_left;
    } else if (blocked_) {
      --waits_left;
      Sleep();
    } else {
      return;
    }
  }
}

void VerifyLoop::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  Wake();
}

}  // namespace specd
