// ReadTekken reads a tekken.json, Mistral's tokenizer file, into a Vocabulary, at start-up.
//
// The file lists special tokens, whose ids are their ranks, and tokens in base64, whose ids come
// after those. Of the tokens only as many count as default_vocab_size says. As in mistral-common,
// each token with a special token's id is special. An error names the file, the field, the value
// found and the remedy. Safe from any thread.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "detokenizer/json_root.h"
#include "detokenizer/vocabulary.h"

namespace specd {

// True if the file has the fields of a tekken.json.
bool IsTekken(const JsonRoot& file);

// Errors begin with `name`, the path of the file.
absl::StatusOr<Vocabulary> ReadTekken(const JsonRoot& file, std::string_view name);

}  // namespace specd
