// LoadTokenizerJson reads a tokenizer.json (the file of Hugging Face tokenizers) into a Vocabulary,
// at start-up.
//
// It reads only the fields that decoding needs: version, added_tokens, decoder, model.type and
// model.vocab. It supports the decoders of piece_decoder.h, and refuses every other file, because
// another decoding would give wrong text in silence. An error names the file, the field, the value
// found and the remedy. Safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"

namespace specd {

// The largest files in use are under 64 MiB.
inline constexpr size_t kTokenizerFileSizeBytesMax = size_t{256} << 20;

absl::StatusOr<Vocabulary> LoadTokenizerJson(const std::string& path);

// The same from memory; errors use `name` as the path.
absl::StatusOr<Vocabulary> ParseTokenizerJson(std::string_view json, std::string_view name);

}  // namespace specd
