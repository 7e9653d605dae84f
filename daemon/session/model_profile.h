// ModelProfile holds the facts of a model that requests share: vocabulary, logit width, EOS ids.
//
// The daemon loads the profile once at start. It is read-only from then on, so any thread may use
// it. A profile without a tokenizer serves ids only: it refuses sequences with stop strings,
// because stop strings could not be found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"
#include "kernels/core/types.h"
#include "speculative/grammar/reasoning_gate.h"

namespace specd {

struct ModelProfileOptions {
  std::string tokenizer_path;           // empty: ids only
  std::vector<std::string> eos_tokens;  // contents of added tokens, such as <|endoftext|>
  std::vector<TokenId> eos_token_ids;   // the same by number; these need no tokenizer
  int32_t vocab_size = 0;               // columns of a row; 0: any number that fits the tokenizer
  grammar::ReasoningTexts reasoning = {};  // constraints begin after its end
};

struct ModelProfile {
  std::optional<Vocabulary> vocabulary;
  std::vector<TokenId> eos_token_ids;  // each once
  int32_t vocab_size = 0;
  grammar::ReasoningTexts reasoning = {};
};

absl::StatusOr<ModelProfile> LoadModelProfile(const ModelProfileOptions& options);

// The largest difference between a row's width and the tokenizer's. Models pad their logits to a
// round number of columns, so a row may be wider. An engine with another tokenizer must not attach,
// because its ids would mean other words.
inline constexpr int32_t kPaddingColumnsMax = 1024;

// Compares an engine's vocab_size with the profile and its EOS ids. The error names both numbers.
absl::Status CheckVocabSize(const ModelProfile& profile, uint32_t engine_vocab_size);

}  // namespace specd
