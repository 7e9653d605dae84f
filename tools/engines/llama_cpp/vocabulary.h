// Tokenize and TextOf are the tokenizer that a GGUF model brings along. The engine needs no other
// one for prompts and for the text of an embedded run. Safe from any thread.
#pragma once

#include <llama.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace specd::llama_cpp {

// With the ids that the model wants at the beginning of a text.
std::vector<int32_t> Tokenize(const llama_vocab* vocab, const std::string& text);
std::string TextOf(const llama_vocab* vocab, std::span<const int32_t> tokens);

// Refuses a draft model whose ids have other texts.
absl::Status CheckSameVocabulary(const llama_vocab* model, const llama_vocab* draft_model);

}  // namespace specd::llama_cpp
