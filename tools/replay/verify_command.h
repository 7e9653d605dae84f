// VerifyTrace runs the rounds of a trace again and compares them with the record, for
// `specd-replay verify` and for tests with other backends.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/replay/command.h"
#include "tools/replay/reason_counts.h"
#include "tools/replay/replay_backend.h"

namespace specd::replay {

struct VerifyReport {
  struct Difference {
    uint64_t round = 0;
    SequenceHandle sequence = 0;
    std::string text;
  };
  // Sequence-rounds.
  uint64_t num_equal_by_rows = 0;     // "equal": run again, to the bit
  uint64_t num_equal_by_scalars = 0;  // "consistent": the recorded numbers lead to the outcome
  uint64_t num_different = 0;
  uint64_t num_not_checkable = 0;
  uint64_t num_states_not_compared = 0;  // of constraints (GrammarCheck)
  ReasonCounts why_not;                  // why tasks were not run again
  std::vector<Difference> differences;   // the first ones
};

// `limit` bounds `differences`. An error is of the file or of the backend.
absl::StatusOr<VerifyReport> VerifyTrace(TraceReader* reader, ReplayBackend* backend,
                                         const CommandOptions& options);

absl::StatusOr<int> RunVerify(const CommandOptions& options);

}  // namespace specd::replay
