#include "daemon/client/host_waits.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ipc/segment/round_words.h"

namespace specd {
namespace {

// A done word comes without a bell. The first looks follow each other as fast as a thread can
// sleep. Later pauses grow with the wait, by an eighth at most.
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
    : context_(*context),
      segment_(*segment),
      turn_(turn),
      rounds_(segment->limits().ring_depth),
      marks_(rounds_.size()) {}

HostWaits::Round* HostWaits::Record(std::vector<Round>* records, uint64_t number) {
  Round& round = (*records)[(number - 1) % records->size()];
  round = {segment_.round_words(number), number};
  return &round;
}

// The driver may run all functions of a process on one thread. Suppose a function waits for an
// answer, and the function of an earlier round is queued after it. The daemon answers in order, so
// both would wait forever. Functions therefore take turns, in the order of the rounds. A function
// that waits then needs nothing except the daemon.
GpuResult HostWaits::Begin(GpuStream stream, uint64_t number) {
  const GpuResult result = context_.WaitEvent(stream, turn_);
  if (!result.ok()) return result;
  return context_.LaunchHostFunction(stream, &Hold, Record(&rounds_, number));
}

// A mark has no turn. It may be late where a function of another CUDA stream waits, and that
// function waits for nothing that the mark brings.
GpuResult HostWaits::Mark(GpuStream stream, uint64_t number) {
  return context_.LaunchHostFunction(stream, &SayMarked, Record(&marks_, number));
}

void HostWaits::SayMarked(void* argument) {
  const Round round = *static_cast<const Round*>(argument);
  MarkDrafts(round.words, round.number);
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
  // After this store another thread may free words and rounds.
  MarkPassed(round.words, round.number);
}

}  // namespace specd
