// VerifyRound, SampleDraftAtOnce and ScoreAtOnce run a round or a call of a Verifier as a test
// does: all of its pieces, without a pause.
//
// One thread, as the Verifier.
#pragma once

#include <span>

#include "absl/functional/function_ref.h"
#include "speculative/verifier.h"

namespace specd {

template <class VerifierPointer>
void VerifyRound(const VerifierPointer& verifier, std::span<const SequenceInput> inputs,
                 std::span<SequenceResult> results) {
  verifier->BeginRound(inputs, results, /*asks=*/false);
  while (verifier->RunPiece()) continue;
  verifier->EndRound(results);
}

// May be called off between its rows and its changes: see Verifier::EndRound.
template <class VerifierPointer>
void VerifyRound(const VerifierPointer& verifier, std::span<const SequenceInput> inputs,
                 std::span<SequenceResult> results, absl::FunctionRef<bool()> may_commit) {
  verifier->BeginRound(inputs, results, /*asks=*/true);
  while (verifier->RunPiece()) continue;
  verifier->EndRound(results, may_commit);
}

template <class VerifierPointer>
void SampleDraftAtOnce(const VerifierPointer& verifier, std::span<const DraftInput> inputs,
                       std::span<DraftResult> results) {
  verifier->BeginCall(inputs, results, /*is_alone=*/false);
  while (verifier->RunCallPiece()) continue;
  verifier->EndCall(results);
}

template <class VerifierPointer>
void ScoreAtOnce(const VerifierPointer& verifier, std::span<const ScoreInput> inputs,
                 std::span<ScoreResult> results) {
  verifier->BeginCall(inputs, results, /*is_alone=*/false);
  while (verifier->RunCallPiece()) continue;
  verifier->EndCall(inputs, results);
}

}  // namespace specd
