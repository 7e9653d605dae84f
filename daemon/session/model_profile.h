// What belongs to a model and not to a request: vocabulary, logit width, EOS ids.
//
// Loaded once at start and read-only from then on, so any thread may use it. A profile without a
// tokenizer serves ids only: sequences with stop strings are refused, because nobody could find
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"
#include "kernels/core/types.h"

namespace specd {

struct ModelProfileOptions {
  std::string tokenizer_path;           // empty: ids only
  std::vector<std::string> eos_tokens;  // contents of added tokens, such as <|endoftext|>
  int32_t vocab_size = 0;               // columns of a row; 0: whatever fits the tokenizer
};

struct ModelProfile {
  std::optional<Vocabulary> vocabulary;
  std::vector<TokenId> eos_token_ids;
  int32_t vocab_size = 0;
};

absl::StatusOr<ModelProfile> LoadModelProfile(const ModelProfileOptions& options);

// Models pad their logits to a round number of columns, so a row may be wider than the tokenizer,
// but an engine with another tokenizer altogether must not attach: its ids would mean other words.
inline constexpr int32_t kPaddingColumnsMax = 1024;

// Fits an engine's vocab_size against the profile; the error names both numbers.
absl::Status CheckVocabSize(const ModelProfile& profile, uint32_t engine_vocab_size);

}  // namespace specd
