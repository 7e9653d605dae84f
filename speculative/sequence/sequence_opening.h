// SequenceOpening makes the state of a sequence from its parameters and its history.
//
// A sequence is opened in two steps. This step checks everything that the sequence shows by itself
// and takes its memory; a prompt of a million ids takes milliseconds. The other step,
// Verifier::Insert, gives the sequence a slot. A session therefore takes its lock for the second
// step only. Constant after construction: any thread, at any time.
//
//   absl::StatusOr<Sequence> built = opening.Build(params, history);   // no lock
//   absl::StatusOr<SequenceInfo> info = verifier->Insert(*std::move(built));  // under the lock
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/grammar/compiler/grammar_holder.h"
#include "speculative/params/params.h"
#include "speculative/processors/token_history.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {

// Returns a 64-bit number from the system's source of randomness.
uint64_t DrawSeed();

class SequenceOpening {
 public:
  // REQUIRES: the EOS ids are inside the vocabulary.
  SequenceOpening(const BackendLimits& limits, std::vector<TokenId> eos_token_ids,
                  std::shared_ptr<grammar::GrammarCompiler> grammars);

  // Builds one sequence; params.n is ignored. The caller builds child i with seed + i.
  // INVALID_ARGUMENT and RESOURCE_EXHAUSTED name the field.
  absl::StatusOr<Sequence> Build(const SequenceParams& params,
                                 const SequenceHistory& history) const;
  // What Build refuses in a history, without long work.
  absl::Status CheckHistory(const SequenceParams& params, const SequenceHistory& history) const;

 private:
  // Compiles the constraint, or finds it compiled, and follows prompt and outputs.
  absl::StatusOr<SequenceGrammar> BuildGrammar(
      const SequenceParams& params, const SequenceHistory& history,
      std::shared_ptr<const grammar::CompiledGrammar>* constraint) const;

  const BackendLimits limits_;
  const std::vector<TokenId> eos_token_ids_;
  const std::shared_ptr<grammar::GrammarCompiler> grammars_;   // null: there is no tokenizer
  const std::unique_ptr<grammar::GrammarHolder> constraints_;  // of the sequences built here
};

}  // namespace specd
