// ParseRankFile reads a rank file of tiktoken into a Vocabulary, at start-up.
//
// Each line of the file has a token's bytes in base64, a space and its rank, which is its id. The
// special tokens come from elsewhere (special_tokens.h). Their text is their content. An error
// names the file, the line, the value found and the remedy. Safe from any thread.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "detokenizer/special_tokens.h"
#include "detokenizer/vocabulary.h"

namespace specd {

// True if the first line is one of a rank file.
bool IsRankFile(std::string_view bytes);

// `find_special_tokens` gets the number of ranks. Errors begin with `name`, the file's path.
absl::StatusOr<Vocabulary> ParseRankFile(
    std::string_view bytes, std::string_view name,
    const std::function<absl::StatusOr<std::vector<SpecialToken>>(size_t num_ranks)>&
        find_special_tokens);

}  // namespace specd
