#include "daemon/client/sequence_ends.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ipc/base/error.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {
namespace {

// The pauses between looks at a sequence whose end the text side may still move, or that is
// pending. Both usually pass within milliseconds.
constexpr absl::Duration kFinalPauseMin = absl::Microseconds(50);
constexpr absl::Duration kFinalPauseMax = absl::Milliseconds(1);

uint32_t PhaseOf(const SequenceState& state) {
  switch (state.finish_reason) {
    case SPECD_FINISH_NONE:
      return SPECD_SEQUENCE_OPEN;
    case SequenceState::kPending:
      return SPECD_SEQUENCE_PENDING;
    case SequenceState::kFailed:
      return SPECD_SEQUENCE_FAILED;
    default:
      return SPECD_SEQUENCE_ENDED;
  }
}

uint32_t ReasonOf(const SequenceState& state) {
  switch (state.finish_reason) {
    case SequenceState::kPending:
      return SPECD_FINISH_NONE;
    case SequenceState::kFailed:
      return SPECD_FINISH_ERROR;
    case SequenceState::kWithdrawn:
      return SPECD_FINISH_ABORT;
    default:
      return state.finish_reason;
  }
}

// Looks with growing pauses, until the time has passed.
class Looks {
 public:
  explicit Looks(Deadline deadline) : deadline_(deadline) {}

  // False if no time is left.
  bool Pause() {
    if (deadline_.HasPassed()) return false;
    absl::SleepFor(pause_);
    pause_ = std::min(2 * pause_, kFinalPauseMax);
    return true;
  }

 private:
  const Deadline deadline_;
  absl::Duration pause_ = kFinalPauseMin;
};

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
  const uint32_t phase = PhaseOf(found);
  const bool has_ended = phase == SPECD_SEQUENCE_ENDED;
  *state = {.finish_reason = ReasonOf(found),
            .kept_tokens = found.kept_tokens,
            .cumulative_logprob =
                has_ended ? rounds_.channel().ReadLogprob(SlotOf(sequence), found) : kNoLogprob,
            .phase = phase,
            .reserved = 0};
}

absl::Status SequenceEnds::Get(uint32_t owner, specd_sequence sequence,
                               specd_sequence_state* state) const {
  const absl::StatusOr<SequenceState> found = Find(owner, sequence);
  if (!found.ok()) return found.status();
  Describe(sequence, *found, state);
  return absl::OkStatus();
}

absl::StatusOr<int> SequenceEnds::AwaitFinal(uint32_t owner, specd_sequence sequence,
                                             specd_sequence_state* state, Deadline deadline) const {
  for (Looks looks(deadline);;) {
    // This question comes before the look at the state: a daemon may end after its last word.
    const bool is_over =
        rounds_.channel().daemon_state() == DaemonState::kStopped || link_.PeerGone();
    const absl::StatusOr<SequenceState> found = Find(owner, sequence);
    if (!found.ok()) return found.status();
    const uint32_t phase = PhaseOf(*found);
    if (phase == SPECD_SEQUENCE_OPEN || phase == SPECD_SEQUENCE_PENDING) {
      return MakeError(SPECD_ERROR_STATE, "sequence",
                       fmt::format("sequence {:#x} has not finished, so its end is not known; call "
                                   "this after a result with a finish_reason",
                                   sequence));
    }
    Describe(sequence, *found, state);
    if (rounds_.channel().IsFinal(SlotOf(sequence), *found)) return SPECD_OK;
    if (is_over) return rounds_.WhyNoCompletion();
    if (!looks.Pause()) return SPECD_EMPTY;
  }
}

absl::StatusOr<int> SequenceEnds::AwaitOpening(uint32_t owner, specd_sequence sequence,
                                               Deadline deadline) const {
  for (Looks looks(deadline);;) {
    const bool is_over =
        rounds_.channel().daemon_state() == DaemonState::kStopped || link_.PeerGone();
    const absl::StatusOr<SequenceState> found = Find(owner, sequence);
    if (!found.ok()) return found.status();
    if (PhaseOf(*found) != SPECD_SEQUENCE_PENDING) return SPECD_OK;
    if (is_over) return rounds_.WhyNoCompletion();
    if (!looks.Pause()) return SPECD_EMPTY;
  }
}

}  // namespace specd
