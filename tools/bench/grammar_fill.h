// GrammarFill times MaskFiller on batches of constrained sequences, for GrammarSuite.
//
// Each sequence of a batch has a constraint of its own, compiled for this batch, and stands
// somewhere in one of its texts. Its draft is what follows there. The first filling is cold: every
// state and mask is new. The fillings after it are warm. Single-threaded outside of MaskFiller.
//
//   GrammarFill fill(&compiler, texts, vocab_size);
//   const GrammarFill::Samples samples = fill.Run({.num_sequences = 8, .threads = 2});
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/core/types.h"
#include "speculative/grammar/compiler/grammar_compiler.h"

namespace specd::bench {

class GrammarFill {
 public:
  // A constraint, and the tokens of a text with its stop id.
  struct Text {
    grammar::GrammarRequest request;
    std::vector<TokenId> tokens;
  };
  struct Batch {
    int32_t num_sequences = 0;
    int32_t threads = 1;
  };
  // Microseconds for a batch.
  struct Samples {
    std::vector<double> cold;  // one
    std::vector<double> warm;
  };

  static constexpr int32_t kDraft = 5;
  static constexpr int kWarmFills = 20;

  // Texts that are shorter than a round are left out.
  static bool IsAnyLongEnough(const std::vector<Text>& texts);
  // The compiler outlives this. REQUIRES: each text satisfies its constraint, and one is long
  // enough.
  GrammarFill(grammar::GrammarCompiler* compiler, std::vector<Text> texts, int32_t vocab_size);

  Samples Run(const Batch& batch) const;

 private:
  grammar::GrammarCompiler& compiler_;
  std::vector<Text> texts_;
  const int32_t vocab_size_;
};

}  // namespace specd::bench
