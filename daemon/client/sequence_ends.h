// SequenceEnds reads in shared memory whether a sequence of an engine has ended, and why.
//
//   ends.Get(owner, sequence, &state);                    // as it stands
//   ends.AwaitOpening(owner, sequence, deadline);        // once it is open, or has failed
//   ends.AwaitFinal(owner, sequence, &state, deadline);  // once nothing can move it any more
//
// `owner` is the part of a handle that the session gives to all of its own. One thread at a time.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/deadline.h"
#include "daemon/client/engine_link.h"
#include "daemon/client/engine_rounds.h"
#include "ipc/include/specd/sequences.h"

namespace specd {

class SequenceEnds {
 public:
  // Keeps references to both.
  SequenceEnds(EngineLink& link, EngineRounds& rounds, uint32_t max_sequences)
      : link_(link), rounds_(rounds), max_sequences_(max_sequences) {}

  absl::Status Get(uint32_t owner, specd_sequence sequence, specd_sequence_state* state) const;
  // SPECD_OK once the sequence is pending no more; SPECD_EMPTY at the deadline.
  absl::StatusOr<int> AwaitOpening(uint32_t owner, specd_sequence sequence,
                                   Deadline deadline) const;
  // SPECD_OK once nothing can move the sequence's end any more; SPECD_EMPTY at the deadline.
  absl::StatusOr<int> AwaitFinal(uint32_t owner, specd_sequence sequence,
                                 specd_sequence_state* state, Deadline deadline) const;

 private:
  absl::StatusOr<SequenceState> Find(uint32_t owner, specd_sequence sequence) const;
  void Describe(specd_sequence sequence, const SequenceState& found,
                specd_sequence_state* state) const;

  EngineLink& link_;
  EngineRounds& rounds_;
  const uint32_t max_sequences_;
};

}  // namespace specd
