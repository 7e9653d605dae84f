// OpenTokenizer reads a tokenizer file of any kind that specd knows into a Vocabulary, at start-up.
//
// It tells the kinds apart by their first bytes, and JSON files by their fields, never by the name
// of the file: tokenizer.json (tokenizer_json.h), tekken.json (tekken_json.h), rank files of
// tiktoken (rank_file.h), SentencePiece models (sentence_piece_model.h), GGUF files
// (gguf_tokenizer.h) and RWKV's vocabulary (rwkv_vocabulary.h). A file of another kind is refused
// by name. Safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"

namespace specd {

// The largest files in use are under 64 MiB.
inline constexpr size_t kTokenizerFileSizeBytesMax = size_t{256} << 20;

// The special tokens of a rank file come from the tokenizer_config.json in its folder. If there is
// none, they are those of special_tokens.h for the file's name.
absl::StatusOr<Vocabulary> OpenTokenizer(const std::string& path);

// A JSON file from memory; errors use `name` as the path.
absl::StatusOr<Vocabulary> ParseTokenizerJson(std::string_view json, std::string_view name);

}  // namespace specd
