#include "tools/engines/llama_cpp/vocabulary.h"

#include <fmt/format.h>

#include <string_view>

namespace specd::llama_cpp {

std::vector<int32_t> Tokenize(const llama_vocab* vocab, const std::string& text) {
  // A token has one byte of the text at least; beyond these come ids that the model adds.
  std::vector<int32_t> ids(text.size() + 8);
  const int32_t count =
      llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), ids.data(),
                     static_cast<int32_t>(ids.size()), /*add_special=*/true,
                     /*parse_special=*/false);
  ids.resize(count < 0 ? 0 : count);
  return ids;
}

std::string TextOf(const llama_vocab* vocab, std::span<const int32_t> tokens) {
  std::string text(64, '\0');
  for (;;) {
    const int32_t size =
        llama_detokenize(vocab, tokens.data(), static_cast<int32_t>(tokens.size()), text.data(),
                         static_cast<int32_t>(text.size()), /*remove_special=*/false,
                         /*unparse_special=*/false);
    text.resize(size < 0 ? -size : size);
    if (size >= 0) return text;
  }
}

absl::Status CheckSameVocabulary(const llama_vocab* model, const llama_vocab* draft_model) {
  const int32_t size = llama_vocab_n_tokens(model);
  const int32_t draft_size = llama_vocab_n_tokens(draft_model);
  if (draft_size != size) {
    return absl::InvalidArgumentError(fmt::format(
        "draft_model: its rows have {} ids, and the model's {}; give a draft model with "
        "the same ids",
        draft_size, size));
  }
  for (int32_t id = 0; id < size; ++id) {
    const std::string_view text = llama_vocab_get_text(model, id);
    const std::string_view draft_text = llama_vocab_get_text(draft_model, id);
    if (text == draft_text) continue;
    return absl::InvalidArgumentError(
        fmt::format("draft_model: its id {} is \"{}\", and the model's is \"{}\"; give a draft "
                    "model with the same ids",
                    id, draft_text, text));
  }
  return absl::OkStatus();
}

}  // namespace specd::llama_cpp
