#include "detokenizer/special_tokens.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "detokenizer/json_root.h"
#include "detokenizer/json_words.h"

namespace specd {
namespace {

using Tokens = std::vector<SpecialToken>;

void Add(TokenId first, std::span<const std::string_view> contents, Tokens* tokens) {
  for (const std::string_view content : contents) {
    tokens->push_back({.id = first++, .content = std::string(content)});
  }
}

// Adds ids first .. last, named "<|WORD_N|>" with N from `number` on.
void AddNumbered(std::string_view word, TokenId first, TokenId last, int number, Tokens* tokens) {
  for (TokenId id = first; id <= last; ++id, ++number) {
    tokens->push_back({.id = id, .content = fmt::format("<|{}_{}|>", word, number)});
  }
}

// tiktoken 0.14, <tiktoken_ext/openai_public.py>.
Tokens Cl100k() {
  constexpr std::string_view kFirst[] = {"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>",
                                         "<|fim_suffix|>"};
  Tokens tokens;
  Add(100257, kFirst, &tokens);
  tokens.push_back({.id = 100276, .content = "<|endofprompt|>"});
  return tokens;
}

// The same. There 200018 has two names, and this one is of both encodings.
Tokens O200k() {
  constexpr std::string_view kFirst[] = {"<|startoftext|>",
                                         "<|endoftext|>",
                                         "<|reserved_200000|>",
                                         "<|reserved_200001|>",
                                         "<|return|>",
                                         "<|constrain|>",
                                         "<|reserved_200004|>",
                                         "<|channel|>",
                                         "<|start|>",
                                         "<|end|>",
                                         "<|message|>",
                                         "<|reserved_200009|>",
                                         "<|reserved_200010|>",
                                         "<|reserved_200011|>",
                                         "<|call|>"};
  Tokens tokens;
  Add(199998, kFirst, &tokens);
  AddNumbered("reserved", 200013, 200017, 200013, &tokens);
  tokens.push_back({.id = 200018, .content = "<|endofprompt|>"});
  AddNumbered("reserved", 200019, 201087, 200019, &tokens);
  return tokens;
}

// Qwen 1, <tokenization_qwen.py>.
Tokens Qwen() {
  constexpr std::string_view kFirst[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  Tokens tokens;
  Add(151643, kFirst, &tokens);
  AddNumbered("extra", 151646, 151850, 0, &tokens);
  return tokens;
}

// Llama 3, <llama/tokenizer.py>. Llama 3.1 gave names to some of the reserved ones; a
// tokenizer_config.json beside the file has them.
Tokens Llama3() {
  constexpr std::string_view kFirst[] = {"<|begin_of_text|>", "<|end_of_text|>"};
  constexpr std::string_view kHeader[] = {"<|start_header_id|>", "<|end_header_id|>",
                                          "<|reserved_special_token_4|>", "<|eot_id|>"};
  Tokens tokens;
  Add(128000, kFirst, &tokens);
  AddNumbered("reserved_special_token", 128002, 128005, 0, &tokens);
  Add(128006, kHeader, &tokens);
  AddNumbered("reserved_special_token", 128010, 128255, 5, &tokens);
  return tokens;
}

}  // namespace

const std::string_view kKnownRankFiles =
    "cl100k_base.tiktoken (100256 ranks), o200k_base.tiktoken (199998), qwen.tiktoken (151643) and "
    "the tokenizer.model of Llama 3 (128000)";

Tokens KnownSpecialTokens(std::string_view file_name, size_t num_ranks) {
  const auto is = [&](std::string_view name, size_t count) {
    return file_name == name && num_ranks == count;
  };
  if (is("cl100k_base.tiktoken", 100256)) return Cl100k();
  if (is("o200k_base.tiktoken", 199998)) return O200k();
  if (is("qwen.tiktoken", 151643)) return Qwen();
  if (is("tokenizer.model", 128000)) return Llama3();
  return {};
}

absl::StatusOr<Tokens> ParseTokenizerConfig(std::string_view json, std::string_view name) {
  const auto invalid = [name](std::string_view message) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", name, message));
  };
  JsonRoot file;
  if (absl::Status status = file.Parse(json, name); !status.ok()) return status;
  simdjson::dom::object decoder;
  if (file.root()["added_tokens_decoder"].get(decoder)) {
    return invalid(
        "added_tokens_decoder is missing or not an object, and the rank file beside it has no "
        "special tokens; add {\"ID\": {\"content\": \"TEXT\", \"special\": true}, ...}");
  }
  Tokens tokens;
  for (const auto& [key, value] : decoder) {
    const std::string field = fmt::format("added_tokens_decoder[{}]", Quote(key));
    int32_t id = 0;
    if (!absl::SimpleAtoi(absl::string_view(key.data(), key.size()), &id) || id < 0 ||
        id >= kVocabSizeMax) {
      return invalid(fmt::format("{} has no id for its key, allowed are integers 0..{}; correct it",
                                 field, kVocabSizeMax - 1));
    }
    std::string_view content;
    bool special = false;
    if (value["content"].get(content) || value["special"].get(special)) {
      return invalid(fmt::format(
          "{} needs a content, which is a string, and a special, which is true or false; add them",
          field));
    }
    tokens.push_back({.id = id, .content = std::string(content), .special = special});
  }
  return tokens;
}

}  // namespace specd
