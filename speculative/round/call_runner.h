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
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/round/round_packer.h"
#include "speculative/round/round_pieces.h"
#include "speculative/round/round_scratch.h"

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
    LiveCounters* counters = nullptr;
    const grammar::GrammarCompiler* grammars = nullptr;  // null: sequences have no constraint
  };
  CallRunner(const BackendLimits& limits, const Parts& parts, const PieceBound& bound);

  // Draws or scores in pieces, as RoundPieces cuts them:
  //
  //   runner.Begin(inputs, results);
  //   while (runner.RunPiece()) Others();
  //   absl::Status status = runner.End(results);   // scores: End(inputs, results)
  //
  // Between two pieces the caller may do what it may do between two pieces of a round (Verifier). A
  // sequence that was closed or finished meanwhile is answered so. End returns the backend's
  // status. If the status is an error, the results say kDeviceError.
  void Begin(std::span<const DraftInput> inputs, std::span<DraftResult> results,
             bool is_alone = false);
  void Begin(std::span<const ScoreInput> inputs, std::span<ScoreResult> results,
             bool is_alone = false);
  bool RunPiece();
  absl::Status End(std::span<DraftResult> results);
  absl::Status End(std::span<const ScoreInput> inputs, std::span<ScoreResult> results);
  // Ends a call that has pieces left, without an answer.
  void CallOff() { Release(); }

  // Runs no backend. A sequence without a constraint, and one whose prefix its constraint forbids,
  // has no forced ids. `index` is that of the request in its call; the ids of two requests of a
  // call lie apart.
  void FindForced(const ForcedInput& input, size_t index, ForcedResult* result);

 private:
  // Packs all inputs that can be packed as tasks of the scratch.
  template <class Input, class Result>
  void PackAll(std::span<const Input> inputs, std::span<Result> results);
  bool Pack(const DraftInput& input, DraftResult* result);
  bool Pack(const ScoreInput& input, ScoreResult* result);
  // The place after a prefix, which needs the mask of its sequence's constraint.
  struct MaskJob {
    Sequence* sequence = nullptr;
    std::span<const TokenId> prefix;
    PlaceEdits* place = nullptr;
  };
  // Fills masks for less than a millisecond. False: some are left.
  bool FillMasks();
  template <class Result>
  bool Refuse(std::string_view reason, Result* result);
  // Cuts the tasks of the scratch, which read these rows.
  void Cut(const TensorView& rows, bool is_alone);
  // Holds the slots of a draft call's sequences, until Release.
  void Hold(std::span<const DraftInput> inputs);
  void Release();
  void Answer(size_t task, DraftResult* result);
  void Answer(size_t task, const ScoreInput& input, ScoreResult* result);

  const BackendLimits limits_;
  const Parts parts_;
  RoundPieces pieces_;
  absl::Status status_;                  // of the pieces so far
  std::vector<MaskJob> mask_jobs_;       // of the present call
  std::vector<grammar::MaskRow> masks_;  // of the first of them
  std::vector<uint32_t> held_;           // slots of the call; a call of one piece holds none
  uint64_t stamp_ = 0;                   // of the current call
  std::vector<DraftSample> samples_;
  std::vector<TokenId> forced_ids_;  // max_output for each input
};

}  // namespace specd
