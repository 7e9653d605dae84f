// SpecialTokens gives the tokens that a rank file does not list, for its loader.
//
// A rank file has the tokens of the training only. Its special tokens stand in the code of the
// model, or in the added_tokens_decoder of a tokenizer_config.json. For the files that many use
// they stand here, too. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/types.h"

namespace specd {

struct SpecialToken {
  TokenId id = 0;
  std::string content = {};
  bool special = true;  // false: shown even if special tokens are skipped
};

// The special tokens of cl100k_base.tiktoken, o200k_base.tiktoken (those of o200k_harmony, which
// has all of o200k_base), qwen.tiktoken (Qwen 1) and Llama 3's tokenizer.model, for a file of this
// name with this many ranks. Empty: the file is none of these.
std::vector<SpecialToken> KnownSpecialTokens(std::string_view file_name, size_t num_ranks);

// Names these files for an error.
extern const std::string_view kKnownRankFiles;

// The added_tokens_decoder of a tokenizer_config.json. Errors begin with `name`, the file's path.
absl::StatusOr<std::vector<SpecialToken>> ParseTokenizerConfig(std::string_view json,
                                                               std::string_view name);

}  // namespace specd
