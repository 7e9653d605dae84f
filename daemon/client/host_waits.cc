#include "daemon/client/host_waits.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ipc/segment/round_words.h"

namespace specd {
namespace {

// No bell comes with a done word. The first looks are as far apart as a thread can sleep at all;
// later ones add an eighth to what was waited, at most.
constexpr absl::Duration kNapMin = absl::Microseconds(20);
constexpr absl::Duration kNapMax = absl::Microseconds(500);
constexpr int kNapShare = 8;

}  // namespace

GpuResult HostWaits::Open(GpuContext* context, Segment* segment,
                          std::unique_ptr<HostWaits>* opened) {
  GpuEvent turn;
  const GpuResult result = context->CreateEvent(&turn);
  if (result.ok()) opened->reset(new HostWaits(context, segment, turn));
  return result;
}

HostWaits::HostWaits(GpuContext* context, Segment* segment, GpuEvent turn)
    : context_(*context), segment_(*segment), turn_(turn), rounds_(segment->limits().ring_depth) {}

// The driver may run all functions of a process on one thread. A function that waits for an answer
// while an earlier round is not ready yet, because that one's function stands behind it, would wait
// for ever: the daemon answers in order. So functions take turns, in the order of the rounds.
// Whoever waits then needs nothing but the daemon.
GpuResult HostWaits::Begin(GpuStream stream, uint64_t number) {
  const GpuResult result = context_.WaitEvent(stream, turn_);
  if (!result.ok()) return result;
  Round& round = rounds_[(number - 1) % rounds_.size()];
  round = {segment_.round_words(number), number};
  return context_.LaunchHostFunction(stream, &Hold, &round);
}

GpuResult HostWaits::Finish(GpuStream stream) { return context_.RecordEvent(turn_, stream); }

void HostWaits::Hold(void* argument) {
  const Round round = *static_cast<const Round*>(argument);
  MarkReady(round.words, round.number);
  absl::Duration waited;
  while (!IsReleased(*round.words, round.number)) {
    const absl::Duration nap = std::clamp(waited / kNapShare, kNapMin, kNapMax);
    absl::SleepFor(nap);
    waited += nap;
  }
  // Whoever sees this may give words and rounds back.
  MarkPassed(round.words, round.number);
}

}  // namespace specd
