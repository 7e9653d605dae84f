// ParseRwkvVocabulary reads the vocabulary of RWKV (rwkv_vocab_v20230424.txt) into a Vocabulary, at
// start-up.
//
// Each line of the file has an id, a literal of Python and the number of its bytes. The literal is
// a string, whose bytes are its UTF-8, or it is one of bytes. Id 0, which ends a text, is not in
// the file and has no text. An error names the file, the line, the value found and the remedy. Safe
// from any thread.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"

namespace specd {

// True if the first line is one of such a vocabulary.
bool IsRwkvVocabulary(std::string_view bytes);

// Errors begin with `name`, the path of the file.
absl::StatusOr<Vocabulary> ParseRwkvVocabulary(std::string_view bytes, std::string_view name);

}  // namespace specd
