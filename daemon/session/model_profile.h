// ModelProfile holds the facts of a model that requests share: vocabulary, logit width, EOS ids,
// markers of reasoning, and defaults of parameters.
//
// The daemon loads its profiles once at start. A profile is read-only from then on, so any thread
// may use it. A profile without a tokenizer serves ids only: it refuses sequences with stop
// strings, because stop strings could not be found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"
#include "ipc/control/open_sequence_request.h"
#include "kernels/core/types.h"
#include "speculative/grammar/matchers/reasoning_gate.h"
#include "speculative/params/params.h"

namespace specd {

struct ModelProfileOptions {
  std::string tokenizer_path = {};           // empty: ids only
  std::vector<std::string> eos_tokens = {};  // contents of added tokens, such as <|endoftext|>
  std::vector<TokenId> eos_token_ids = {};   // the same by number; these need no tokenizer
  int32_t vocab_size = 0;  // columns of a row; 0: any number that fits the tokenizer
  grammar::ReasoningTexts reasoning = {};  // constraints begin after its end
  // The end of `reasoning` follows from the name of a parser, so it must be an added token.
  bool reasoning_must_be_added = false;
  ThinkingParams thinking = {};  // the markers of a thinking budget; the budget is a request's
  double scale = 1;              // of logits; CONTRACT §3
  double cap = 0;
  NamedNumbers grammar = {};  // defaults of grammar_ parameters, by name
  // The facts come from the options of an embedded engine, so errors name those and no flags.
  bool embedded = false;

  // True if nothing of a model is named.
  bool IsEmpty() const {
    return tokenizer_path.empty() && eos_tokens.empty() && eos_token_ids.empty() &&
           vocab_size == 0 && reasoning.start.empty() && reasoning.end.empty();
  }
};

struct ModelProfile {
  std::string name = {};  // by which engines ask for it; empty: the model of those that name none
  std::optional<Vocabulary> vocabulary;
  uint64_t tokenizer_hash = 0;         // Vocabulary::Hash; 0: no vocabulary
  std::vector<TokenId> eos_token_ids;  // each once
  int32_t vocab_size = 0;
  grammar::ReasoningTexts reasoning = {};
  ThinkingParams thinking = {};  // without a budget
  double scale = 1;
  double cap = 0;
  NamedNumbers grammar = {};
  bool embedded = false;  // as in the options
};

// INVALID_ARGUMENT: the error names the flag or key, and the remedy.
absl::StatusOr<ModelProfile> LoadModelProfile(const ModelProfileOptions& options);

// Refuses an engine whose tokenizer has another hash. An engine without a hash passes, and so does
// every engine if the profile has no tokenizer: nothing then turns its ids into text.
absl::Status CheckTokenizer(const ModelProfile& profile, uint64_t engine_hash);

// Compares an engine's vocab_size with the profile, its EOS ids and its thinking ids. The error
// names both numbers. Models pad their logits, so a row may have any number of columns beyond the
// tokenizer's ids. Added tokens may lie past the columns. If a model token does, the tokenizer is
// another model's, and its ids would mean other words.
absl::Status CheckVocabSize(const ModelProfile& profile, uint32_t engine_vocab_size);

// A warning that names the added tokens past the columns, which are never drawn; empty if there are
// none. REQUIRES: CheckVocabSize accepts the width.
std::string WarnOfUnreachableIds(const ModelProfile& profile, uint32_t engine_vocab_size);

}  // namespace specd
