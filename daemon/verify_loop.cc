#include "daemon/verify_loop.h"

#include <utility>

namespace specd {
namespace {

// Every wake has a bell; the timeouts only bound what a missed one could cost.
constexpr absl::Duration kSleep = absl::Milliseconds(50);
constexpr absl::Duration kSleepBlocked = absl::Milliseconds(1);

}  // namespace

VerifyLoop::VerifyLoop(const SessionList* sessions, Options options)
    : sessions_(sessions), options_(std::move(options)) {}

bool VerifyLoop::Step() {
  if (sessions_->Refresh(&version_, &snapshot_)) {
    bells_.assign(1, Doorbell(&own_bell_));
    for (const auto& session : snapshot_) bells_.push_back(session->channel().submission_bell());
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
      fault != ChannelFault::kNone && session.EndAll()) {
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
    WaitAny({bells_.data(), 1}, {0, kSleepBlocked},
            [this] { return stop_.load(std::memory_order_relaxed); });
    return;
  }
  WaitAny(bells_, {options_.spin_ns, kSleep}, [this] { return HasWork(); });
}

void VerifyLoop::Run() {
  while (!stop_.load(std::memory_order_relaxed)) {
    if (!Step()) Sleep();
  }
  while (Step()) {
  }
}

void VerifyLoop::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  Wake();
}

}  // namespace specd
