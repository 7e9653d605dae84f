// CallRunner draws draft tokens, scores given ids and finds forced ids for a verifier. It changes
// no sequence.
//
// The session has checked the numbers (daemon/session/session_calls.h). CallRunner checks the
// values that depend on the sequence. After construction it allocates nothing, except for forced
// ids and for a mask that is not built yet. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/core/calls.h"
#include "speculative/grammar/grammar_compiler.h"
#include "speculative/round_packer.h"
#include "speculative/round_scratch.h"

namespace specd {

class CallRunner {
 public:
  // The parts that a call uses. They must outlive this object.
  struct Parts {
    Backend* backend = nullptr;
    SequenceTable* sequences = nullptr;
    const RowBindings* rows = nullptr;
    const RoundPacker* packer = nullptr;
    RoundScratch* scratch = nullptr;
    VerifierCounters* counters = nullptr;
    const grammar::GrammarCompiler* grammars = nullptr;  // null: sequences have no constraint
  };
  CallRunner(const BackendLimits& limits, const Parts& parts);

  // Both return the backend's status. If the status is an error, the results say kDeviceError.
  absl::Status SampleDraft(std::span<const DraftInput> inputs, std::span<DraftResult> results);
  absl::Status Score(std::span<const ScoreInput> inputs, std::span<ScoreResult> results);
  // Runs no backend. A sequence without a constraint, and one whose prefix its constraint forbids,
  // has no forced ids.
  void FindForced(std::span<const ForcedInput> inputs, std::span<ForcedResult> results);

 private:
  // Packs all inputs that can be packed as tasks of the scratch.
  template <class Input, class Result>
  void PackAll(std::span<const Input> inputs, std::span<Result> results);
  bool Pack(const DraftInput& input, DraftResult* result);
  bool Pack(const ScoreInput& input, ScoreResult* result);
  // The ids go into forced_ids_ at `to`.
  void FindForced(const ForcedInput& input, TokenId* to, ForcedResult* result);
  // Sets the mask of the place after the input's prefix. False if no memory is left for it.
  bool FillMask(const DraftInput& input, Sequence* sequence, PlaceEdits* place);
  template <class Result>
  bool Refuse(std::string_view reason, Result* result);
  // Runs the tasks of the scratch over these rows.
  absl::Status Run(const TensorView& rows);
  void Answer(size_t task, DraftResult* result);
  void Answer(size_t task, const ScoreInput& input, ScoreResult* result);

  const BackendLimits limits_;
  const Parts parts_;
  uint64_t stamp_ = 0;  // of the current call
  std::vector<DraftSample> samples_;
  std::vector<TokenId> forced_ids_;  // max_output for each input
};

}  // namespace specd
