// SequenceReports tells the engine and the publisher what became of a sequence, for
// SessionSequences.
//
// The engine reads a word of the segment for each slot, and a final one once nothing moves the end
// any more. The publisher gets the tokens and the end as events. The caller holds the session's
// lock, and has the stream of the sequence.
#pragma once

#include <cstdint>

#include "daemon/session/opening_builder.h"
#include "daemon/session/session_state.h"

namespace specd {

class SequenceReports {
 public:
  // The state outlives this object.
  explicit SequenceReports(SessionState* state) : state_(*state) {}

  // Writes the words of the segment, the final one too if the end is settled.
  void WriteState(const SequenceStream& stream, const Sequence& sequence);
  // The same for an end that a round has brought.
  void WriteEnd(const SequenceStream& stream, const SequenceResult& result);
  // Pushes the events of a result that kept tokens or ended its sequence, and counts it.
  void Publish(const SequenceResult& result, int64_t time_ns, SequenceStream* to);
  // Pushes the end of the stream.
  void PushEnd(const SequenceStream& stream, const Sequence& sequence);

 private:
  void WriteWords(const SequenceStream& stream, SequenceHandle handle, const SequenceState& word,
                  double cumulative_logprob);

  SessionState& state_;
};

}  // namespace specd
