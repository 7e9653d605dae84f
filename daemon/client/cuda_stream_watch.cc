#include "daemon/client/cuda_stream_watch.h"

#include <poll.h>

#include <algorithm>

#include "ipc/segment/doorbell.h"
#include "ipc/segment/round_words.h"

namespace specd {
namespace {

// A look costs a few loads. Ready rows may be seen one pause late, which adds to the timeout.
constexpr int64_t kPauseShare = 8;
constexpr int kPauseMinMs = 1;
constexpr int kPauseMaxMs = 25;
// Without a daemon the watch must follow the CUDA streams to their waits, one after another.
constexpr int kPauseGoneMs = 1;

int PauseMs(int64_t timeout_ns) {
  return static_cast<int>(
      std::clamp<int64_t>(timeout_ns / 1'000'000 / kPauseShare, kPauseMinMs, kPauseMaxMs));
}

bool IsCompleted(const Segment& segment, uint64_t number) {
  const CompletionEntry& entry =
      segment.completion_entries()[(number - 1) & (segment.limits().ring_depth - 1)];
  // Pairs with the release in RingProducer::Publish. The number stands alone.
  return entry.sequence.load(std::memory_order_acquire) == number;
}

}  // namespace

CudaStreamWatch::CudaStreamWatch(const Options& options)
    : options_(options),
      awake_(std::max(options.timeout_ns / 4, int64_t{2'000'000} * PauseMs(options.timeout_ns))) {}

absl::Status CudaStreamWatch::Start() {
  return thread_.Start("cuda_stream", "the watch over streams", [this] { Run(); });
}

void CudaStreamWatch::Run() {
  const int pause_ms = PauseMs(options_.timeout_ns);
  bool daemon_gone = false;
  while (true) {
    // After a hang-up, poll would report the socket at once and forever.
    pollfd polled[] = {{thread_.stop_fd(), POLLIN, 0},
                       {daemon_gone ? -1 : options_.hangup_fd, POLLRDHUP, 0}};
    (void)poll(polled, 2, daemon_gone ? kPauseGoneMs : pause_ms);
    if (polled[0].revents != 0) return;
    const auto state = static_cast<DaemonState>(
        // Pairs with the release in DaemonChannel::SetState: no completion comes after it.
        options_.segment->page()->daemon.state.load(std::memory_order_acquire));
    daemon_gone = daemon_gone || polled[1].revents != 0 || state == DaemonState::kStopped;
    Look(options_.clock->NowNs(), daemon_gone);
  }
}

void CudaStreamWatch::Add(uint64_t number, const void* stream) {
  MutexLock lock(&mutex_);
  RoundOf(number) = {number, stream, -1};
}

bool CudaStreamWatch::IsFree(uint64_t number, const void* stream) {
  MutexLock lock(&mutex_);
  const Round& before = RoundOf(number);
  return before.number == 0 || before.stream == stream ||
         HasPassed(*options_.segment->round_words(number), before.number);
}

void CudaStreamWatch::Look(int64_t now_ns, bool daemon_gone) {
  bool released = false;
  {
    MutexLock lock(&mutex_);
    awake_.Step(now_ns);
    for (Round& round : rounds_) {
      if (round.number != 0) released = LookAt(&round, daemon_gone) || released;
    }
  }
  // The engine's CPU may wait for the same round.
  if (released) Doorbell(&options_.segment->page()->completion_bell).Ring();
}

// The round may be claimed: the daemon ended before it could report what it confirmed. No other
// thread writes the word now; Release orders it.
void CudaStreamWatch::Abort(RoundWords* words, uint64_t number) const {
  if (IsCompleted(*options_.segment, number)) return;
  words->status.store(PackRoundEnd(number, RoundEnd::kAborted), std::memory_order_relaxed);
}

bool CudaStreamWatch::LookAt(Round* round, bool daemon_gone) {
  RoundWords* words = options_.segment->round_words(round->number);
  if (IsReleased(*words, round->number) || !AreRowsReady(*words, round->number)) return false;
  if (round->ready_ns < 0) round->ready_ns = awake_.now_ns();
  if (daemon_gone) {
    Abort(words, round->number);
  } else if (awake_.now_ns() - round->ready_ns < options_.timeout_ns ||
             Decide(words, round->number, RoundEnd::kAborted) != RoundEnd::kAborted) {
    return false;
  }
  Release(words, round->number);
  return true;
}

void CudaStreamWatch::ReleaseAll(bool also_claimed) {
  MutexLock lock(&mutex_);
  for (const Round& round : rounds_) {
    if (round.number == 0) continue;
    RoundWords* words = options_.segment->round_words(round.number);
    if (IsReleased(*words, round.number)) continue;
    if (Decide(words, round.number, RoundEnd::kAborted) != RoundEnd::kAborted) {
      if (!also_claimed) continue;
      // For the CUDA stream the round has no answer, because parts of the answer may be missing.
      words->status.store(PackRoundEnd(round.number, RoundEnd::kAborted),
                          std::memory_order_relaxed);
    }
    Release(words, round.number);
  }
}

void CudaStreamWatch::LetGo() {
  Stop();
  MutexLock lock(&mutex_);
  for (const Round& round : rounds_) {
    if (round.number == 0) continue;
    RoundWords* words = options_.segment->round_words(round.number);
    if (IsReleased(*words, round.number)) continue;
    Abort(words, round.number);
    Release(words, round.number);
  }
}

bool CudaStreamWatch::HaveAllPassed() {
  MutexLock lock(&mutex_);
  return std::all_of(rounds_.begin(), rounds_.end(), [this](const Round& round) {
    return round.number == 0 ||
           HasPassed(*options_.segment->round_words(round.number), round.number);
  });
}

}  // namespace specd
