// OpeningChecks refuses parameters that a session cannot honour, for SessionSequences.
//
// These are the parameters that need something beside the verifier: a text side, EOS ids, room in
// results. SequenceOpening checks all others (speculative/sequence/sequence_opening.h). Constant
// after construction: any thread, at any time.
#pragma once

#include "absl/status/status.h"
#include "daemon/session/session_state.h"
#include "speculative/params/params.h"

namespace specd {

class OpeningChecks {
 public:
  // The options outlive this object.
  explicit OpeningChecks(const SessionOptions* options) : options_(*options) {}

  absl::Status Check(const SequenceParams& params) const;
  // Stop strings that are not found inside rounds need a text side that finds them.
  absl::Status CheckTextSide() const;
  // True if the rounds of such a sequence make its text: it asks for that, or it has stop strings
  // and there is never a text side, as in an embedded engine. Where events are published their
  // readers make the text, and rounds only to find stop strings.
  bool IsInline(const SequenceParams& params) const {
    if (params.HasStops()) {
      return params.stops == StopSearch::kInline || !options_.text_side;
    }
    return params.stops == StopSearch::kInline && !options_.publish_events;
  }

 private:
  absl::Status CheckLossy(const SequenceParams& params) const;
  absl::Status CheckInline(const SequenceParams& params) const;
  absl::Status CheckText(const SequenceParams& params) const;
  static absl::Status CheckStops(const SequenceParams& params);
  absl::Status CheckEos(const SequenceParams& params) const;
  absl::Status CheckScores(const SequenceParams& params) const;

  const SessionOptions& options_;
};

}  // namespace specd
