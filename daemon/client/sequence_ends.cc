#include "daemon/client/sequence_ends.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "ipc/base/error.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {
namespace {

// The pauses between looks at a sequence whose end the text side may still move. The text side
// usually answers within milliseconds.
constexpr absl::Duration kFinalPauseMin = absl::Microseconds(50);
constexpr absl::Duration kFinalPauseMax = absl::Milliseconds(1);

}  // namespace

absl::StatusOr<SequenceState> SequenceEnds::Find(uint32_t owner, specd_sequence sequence) const {
  const uint32_t slot = SlotOf(sequence);
  const bool is_ours = OwnerOf(sequence) == owner;
  if (is_ours && slot < max_sequences_) {
    const SequenceState found = rounds_.channel().ReadState(slot);
    if (IsStateOf(found, sequence)) return found;
  }
  return MakeError(
      SPECD_ERROR_NOT_FOUND, "sequence",
      is_ours ? fmt::format("sequence {:#x} is not open", sequence) : WhyForeign(sequence));
}

void SequenceEnds::Describe(specd_sequence sequence, const SequenceState& found,
                            specd_sequence_state* state) const {
  *state = {.finish_reason = found.finish_reason,
            .kept_tokens = found.kept_tokens,
            .cumulative_logprob = found.finish_reason != SPECD_FINISH_NONE
                                      ? rounds_.channel().ReadLogprob(SlotOf(sequence), found)
                                      : kNoLogprob};
}

absl::Status SequenceEnds::Get(uint32_t owner, specd_sequence sequence,
                               specd_sequence_state* state) const {
  const absl::StatusOr<SequenceState> found = Find(owner, sequence);
  if (!found.ok()) return found.status();
  Describe(sequence, *found, state);
  return absl::OkStatus();
}

absl::StatusOr<int> SequenceEnds::AwaitFinal(uint32_t owner, specd_sequence sequence,
                                             specd_sequence_state* state, int timeout_ms) const {
  const int64_t begin_ns = Clock::Real()->NowNs();
  absl::Duration pause = kFinalPauseMin;
  for (;;) {
    // This question comes before the look at the state: a daemon may end after its last word.
    const bool is_over =
        rounds_.channel().daemon_state() == DaemonState::kStopped || link_.PeerGone();
    const absl::StatusOr<SequenceState> found = Find(owner, sequence);
    if (!found.ok()) return found.status();
    if (found->finish_reason == SPECD_FINISH_NONE) {
      return MakeError(SPECD_ERROR_STATE, "sequence",
                       fmt::format("sequence {:#x} has not finished, so its end is not known; call "
                                   "this after a result with a finish_reason",
                                   sequence));
    }
    Describe(sequence, *found, state);
    if (rounds_.channel().IsFinal(SlotOf(sequence), *found)) return SPECD_OK;
    if (is_over) return rounds_.WhyNoCompletion();
    const int64_t waited_ns = Clock::Real()->NowNs() - begin_ns;
    if (timeout_ms >= 0 && waited_ns >= int64_t{timeout_ms} * 1'000'000) return SPECD_EMPTY;
    absl::SleepFor(pause);
    pause = std::min(2 * pause, kFinalPauseMax);
  }
}

}  // namespace specd
