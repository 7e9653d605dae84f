#include "daemon/server/verify_loop.h"

#include <algorithm>
#include <utility>

namespace specd {
namespace {

// Every wake has a bell. The timeouts only bound the cost of a missed bell.
constexpr absl::Duration kSleep = absl::Milliseconds(50);
constexpr absl::Duration kSleepBlocked = absl::Milliseconds(1);
constexpr absl::Duration kSleepYielding = absl::Microseconds(50);
constexpr int32_t kDrainWaitsMax = 1000;  // each of kSleepBlocked
// The pause between two looks at rows that are not ready is an eighth of the time waited so far. A
// round is then late by an eighth of its forward at most. An engine that never gets there costs a
// thousand looks per second.
constexpr absl::Duration kPauseMin = absl::Microseconds(50);
constexpr absl::Duration kPauseMax = absl::Milliseconds(1);
constexpr int64_t kPauseShare = 8;
// on_events may wake a thread. A round that comes at once, as a spinning engine's next one does,
// must not wait for that. A loop that does not spin sleeps instead, which costs more.
constexpr int64_t kEventsAfterNs = 20'000;

}  // namespace

VerifyLoop::VerifyLoop(const SessionList* sessions, Options options)
    : sessions_(sessions),
      options_(std::move(options)),
      meters_(options_.meters == nullptr ? own_meters_ : *options_.meters) {}

bool VerifyLoop::Step() {
  ++meters_.beats;
  if (sessions_->Refresh(&version_, &snapshot_)) {
    bells_.assign(1, Doorbell(&own_bell_));
    // Ended sessions stay listed until the publisher has drained them. Their bells are no longer
    // rung and are left out. Only so can all bells be waited for at once.
    for (const auto& session : snapshot_) {
      if (!session->ended()) bells_.push_back(session->channel().submission_bell());
    }
  }
  bool worked = false;
  blocked_ = false;
  yields_ = false;
  for (const auto& session : snapshot_) worked = ServeOne(*session) || worked;
  if (const size_t num_held = CountHeld(); worked || num_held != num_held_) {
    num_held_ = num_held;
    meters_.held_rounds.Set(num_held);
    held_for_ = absl::ZeroDuration();
  }
  owes_events_ = owes_events_ || worked;
  return worked;
}

size_t VerifyLoop::CountHeld() const {
  return static_cast<size_t>(std::count_if(
      snapshot_.begin(), snapshot_.end(),
      [](const auto& session) { return !session->ended() && session->channel().IsHeld(); }));
}

void VerifyLoop::ReportMissingPage(Session& session) {
  if (session.has_faulted() && session.ended() && options_.on_missing_page) {
    options_.on_missing_page(session);
  }
}

bool VerifyLoop::ServeOne(Session& session) {
  if (session.ended()) return false;
  const bool draining = stop_.load(std::memory_order_relaxed);
  if (session.is_between_pieces()) {
    if (session.IsWanted() && !draining) {
      // Sleep gives the waiting thread the time to take the lock.
      yields_ = true;
      return false;
    }
  } else if (!session.channel().HasSubmission()) {
    // While the loop drains, its steps are counted as rounds.
    if (draining || !session.channel().IsHeld()) return false;
    const bool is_prepared = session.Prepare();
    ReportMissingPage(session);
    return is_prepared;
  }
  // The first bell is the loop's own.
  if (session.StepPiece(bells_.size() == 2)) {
    // A round that needs more than one piece would keep the daemon from ending.
    if (draining) session.CallOffRound();
    ReportMissingPage(session);
    if (session.device_failed() && !reported_failure_) {
      reported_failure_ = true;
      options_.on_device_failure(session.WhyDeviceFailed());
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
  return stop_.load(std::memory_order_relaxed) || sessions_->version() != version_ || HasRounds();
}

bool VerifyLoop::HasRounds() const {
  for (const auto& session : snapshot_) {
    if (session->ended()) continue;
    if (session->is_between_pieces() || session->channel().HasSubmission()) return true;
  }
  return CountHeld() != num_held_;
}

void VerifyLoop::TellIdle() {
  if (!options_.on_idle || blocked_ || yields_ || num_held_ > 0) return;
  options_.on_idle(std::exchange(has_worked_, false));
}

void VerifyLoop::TellEvents() {
  if (std::exchange(owes_events_, false) && options_.on_events) options_.on_events();
}

void VerifyLoop::Sleep() {
  if (yields_ && !blocked_) {
    WaitAny({bells_.data(), 1}, {0, kSleepYielding}, [] { return false; });
    return;
  }
  if (blocked_) {
    // The session waits until the publisher makes room or drops an ended session. No bell reports
    // either.
    TellEvents();
    WaitAny({bells_.data(), 1}, {0, kSleepBlocked}, [] { return false; });
    return;
  }
  const bool draining = stop_.load(std::memory_order_relaxed);
  if (const int64_t first_ns = std::min(options_.spin_ns, kEventsAfterNs);
      owes_events_ && first_ns > 0 && !draining &&
      WaitAny(bells_, {first_ns, absl::Nanoseconds(first_ns)}, [this] { return HasWork(); })) {
    return;
  }
  TellEvents();
  if (num_held_ == 0) {
    WaitAny(bells_, {options_.spin_ns, kSleep}, [this] { return HasWork(); });
    return;
  }
  // The loop spins once for a new round, and then only looks again and again.
  const int64_t spin_ns = held_for_ == absl::ZeroDuration() ? options_.spin_ns : 0;
  const absl::Duration pause =
      absl::Nanoseconds(spin_ns) + std::clamp(held_for_ / kPauseShare, kPauseMin, kPauseMax);
  WaitAny(bells_, {spin_ns, pause},
          [this, draining] { return draining ? HasRounds() : HasWork(); });
  held_for_ += pause;
}

void VerifyLoop::Run() {
  while (!stop_.load(std::memory_order_relaxed)) {
    if (Step()) {
      has_worked_ = true;
      continue;
    }
    TellIdle();
    Sleep();
  }
  Drain();
}

void VerifyLoop::Drain() {
  // Every session is told that it drains, so each has at most one ring of rounds left. An engine
  // that continues nevertheless must not keep the daemon from ending. Rounds that wait for the
  // publisher get a bounded time.
  int32_t rounds_left = SessionLimits::kRingDepthMax;
  int32_t waits_left = kDrainWaitsMax;
  while (rounds_left > 0 && waits_left > 0) {
    if (Step()) {
      --rounds_left;
    } else if (blocked_ || num_held_ > 0) {
      --waits_left;
      Sleep();
    } else if (HasRounds()) {
      // A held round became ready after Step had looked at it and before Step counted the held
      // ones.
      --waits_left;
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
