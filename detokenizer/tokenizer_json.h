// ReadTokenizerJson reads a tokenizer.json (the file of Hugging Face tokenizers) into a Vocabulary,
// at start-up.
//
// It reads only the fields that decoding needs: version, added_tokens, decoder, model.type and
// model.vocab. It supports the decoders of piece_decoder.h, and refuses every other file, because
// another decoding would give wrong text in silence. An error names the file, the field, the value
// found and the remedy. Safe from any thread.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "detokenizer/json_root.h"
#include "detokenizer/vocabulary.h"

namespace specd {

// Errors begin with `name`, the path of the file.
absl::StatusOr<Vocabulary> ReadTokenizerJson(const JsonRoot& file, std::string_view name);

}  // namespace specd
