// ReadGgufTokenizer reads the tokenizer of a GGUF file of llama.cpp into a Vocabulary, at start-up.
//
// It reads the keys tokenizer.ggml.*, which come before the tensors. The models `llama` and `t5`
// have SentencePiece's pieces, and `gpt2` those of a byte-level BPE. Every other model is refused
// by name. An error names the file, the key, the value found and the remedy. Safe from any thread.
#pragma once

#include <cstdio>
#include <string_view>

#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"

namespace specd {

inline constexpr std::string_view kGgufMagic = "GGUF";

// `file` stands at its first byte. Errors begin with `name`, the path of the file.
absl::StatusOr<Vocabulary> ReadGgufTokenizer(std::FILE* file, std::string_view name);

}  // namespace specd
