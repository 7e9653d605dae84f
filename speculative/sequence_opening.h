// SequenceOpening: makes the state of a sequence out of its parameters and its history.
//
// Opening is two steps. This one checks everything that one sequence shows by itself and takes its
// memory; with a prompt of a million ids it takes milliseconds. The other one, Verifier::Insert,
// gives the sequence a slot. So a session takes its lock for the second step only. Constant after
// construction: any thread, at any time.
//
//   absl::StatusOr<Sequence> built = opening.Build(params, history);   // no lock
//   absl::StatusOr<SequenceInfo> info = verifier->Insert(*std::move(built));  // under the lock
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "speculative/params.h"
#include "speculative/sequence_table.h"
#include "speculative/token_history.h"

namespace specd {

// A 64-bit number from the system's source of randomness.
uint64_t DrawSeed();

class SequenceOpening {
 public:
  // REQUIRES: the EOS ids are inside the vocabulary.
  SequenceOpening(const BackendLimits& limits, std::vector<TokenId> eos_token_ids);

  // One sequence, whatever params.n says: its caller makes child i with seed + i. INVALID_ARGUMENT
  // and RESOURCE_EXHAUSTED name the field.
  absl::StatusOr<Sequence> Build(const SequenceParams& params,
                                 const SequenceHistory& history) const;

 private:
  absl::Status CheckHistory(const SequenceParams& params, const SequenceHistory& history) const;

  const BackendLimits limits_;
  const std::vector<TokenId> eos_token_ids_;
};

}  // namespace specd
