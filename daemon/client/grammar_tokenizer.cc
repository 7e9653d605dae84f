#include "daemon/client/grammar_tokenizer.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "detokenizer/tokenizer_file.h"
#include "ipc/base/error.h"

namespace specd {
namespace {

// The bytes of all tokens together; the Vocabulary counts them with 32 bits.
constexpr uint64_t kTokensSizeBytesMax = uint64_t{1} << 30;

absl::Status CheckToken(const specd_token& token, uint64_t id) {
  if (token.size_bytes > Vocabulary::kTokenSizeBytesMax) {
    return Invalid("tokens", fmt::format("tokens[{}].size_bytes = {} is outside 0 .. {}", id,
                                         token.size_bytes, Vocabulary::kTokenSizeBytesMax));
  }
  if (token.bytes == nullptr && token.size_bytes > 0) {
    return Invalid("tokens", fmt::format("tokens[{}].bytes is NULL but size_bytes = {}", id,
                                         token.size_bytes));
  }
  if (token.special > 1) {
    return Invalid("tokens",
                   fmt::format("tokens[{}].special = {} is neither 0 nor 1", id, token.special));
  }
  return absl::OkStatus();
}

absl::StatusOr<Vocabulary> ReadTokens(const specd_tokens& tokens) {
  if (tokens.items == nullptr) {
    return Invalid("tokens", fmt::format("tokens.items is NULL but count = {}", tokens.count));
  }
  if (tokens.count < 1 || tokens.count > static_cast<uint64_t>(kVocabSizeMax)) {
    return Invalid(
        "tokens", fmt::format("tokens.count = {} is outside 1 .. {}", tokens.count, kVocabSizeMax));
  }
  Vocabulary::Builder builder;
  uint64_t size_bytes = 0;
  for (uint64_t id = 0; id < tokens.count; ++id) {
    const specd_token& token = tokens.items[id];
    if (absl::Status status = CheckToken(token, id); !status.ok()) return status;
    if (token.size_bytes == 0) continue;
    size_bytes += token.size_bytes;
    if (size_bytes > kTokensSizeBytesMax) {
      return Invalid("tokens", fmt::format("tokens: more than {} bytes together up to id {}; leave "
                                           "out what no text contains",
                                           kTokensSizeBytesMax, id));
    }
    builder.Set(static_cast<TokenId>(id), {token.bytes, token.size_bytes},
                {.special = token.special == 1});
  }
  return std::move(builder).Build();
}

absl::StatusOr<Vocabulary> ReadVocabulary(const specd_tokenizer_options& options) {
  const int num_given = (options.path != nullptr) + (options.json != nullptr) +
                        (options.tokens.items != nullptr || options.tokens.count > 0);
  if (num_given != 1) {
    return Invalid(
        "path", fmt::format("{} of path, json and tokens were given; give exactly one", num_given));
  }
  if (options.path != nullptr) return OpenTokenizer(options.path);
  if (options.json == nullptr) return ReadTokens(options.tokens);
  absl::StatusOr<std::string_view> json =
      TextOf("json", options.json, options.json_bytes, kTokenizerFileSizeBytesMax);
  if (!json.ok()) return json.status();
  return ParseTokenizerJson(*json, "json");
}

absl::Status CheckWidth(uint32_t vocab_size, uint64_t num_ids) {
  if (vocab_size < 1 || vocab_size > static_cast<uint32_t>(kVocabSizeMax)) {
    return Invalid("vocab_size", fmt::format("vocab_size = {} is outside 1 .. {}; it is the number "
                                             "of columns of the model's logits",
                                             vocab_size, kVocabSizeMax));
  }
  if (vocab_size >= num_ids) return absl::OkStatus();
  return Invalid("vocab_size",
                 fmt::format("vocab_size = {}, but the tokenizer has ids up to {}; use the "
                             "tokenizer of your model, or give the ids that its logits have as "
                             "tokens",
                             vocab_size, num_ids - 1));
}

}  // namespace

absl::StatusOr<std::string_view> TextOf(const char* field, const char* text, uint64_t size_bytes,
                                        size_t size_bytes_max) {
  if (text == nullptr) {
    if (size_bytes == 0) return std::string_view();
    return Invalid(field, fmt::format("{0} is NULL but {0}_bytes = {1}", field, size_bytes));
  }
  if (size_bytes == 0) size_bytes = strnlen(text, size_bytes_max + 1);
  if (size_bytes <= size_bytes_max) return std::string_view(text, size_bytes);
  return Invalid(field, fmt::format("{} has more than {} bytes", field, size_bytes_max));
}

GrammarTokenizer::GrammarTokenizer(Vocabulary vocabulary, int32_t vocab_size)
    : vocabulary_(std::move(vocabulary)),
      vocab_size_(vocab_size),
      pool_([] { return Clock::Real()->NowNs(); }) {}

absl::StatusOr<std::shared_ptr<GrammarTokenizer>> GrammarTokenizer::Create(
    const specd_tokenizer_options& options) {
  absl::StatusOr<Vocabulary> vocabulary = ReadVocabulary(options);
  if (!vocabulary.ok()) return vocabulary.status();
  const uint64_t num_ids = options.tokens.count > 0
                               ? options.tokens.count
                               : static_cast<uint64_t>(vocabulary->MinColumns());
  if (absl::Status s = CheckWidth(options.vocab_size, num_ids); !s.ok()) return s;
  const std::shared_ptr<GrammarTokenizer> made(
      new GrammarTokenizer(*std::move(vocabulary), static_cast<int32_t>(options.vocab_size)));
  absl::StatusOr<std::vector<TokenId>> eos = made->StopIds(options.eos_token_ids, "eos_token_ids");
  if (!eos.ok()) return eos.status();
  made->eos_token_ids_ = *std::move(eos);
  made->compiler_ = std::make_unique<grammar::GrammarCompiler>(grammar::GrammarCompilerOptions{
      .vocabulary = &made->vocabulary_, .vocab_size = made->vocab_size_});
  if (absl::Status s = made->compiler_->Prepare(); !s.ok()) return s;
  return made;
}

absl::StatusOr<std::vector<TokenId>> GrammarTokenizer::StopIds(const specd_ids& ids,
                                                               const char* field) const {
  if (ids.count > kStopIdsMax) {
    return Invalid(field,
                   fmt::format("{}.count = {} is outside 0 .. {}", field, ids.count, kStopIdsMax));
  }
  if (ids.items == nullptr && ids.count > 0) {
    return Invalid(field, fmt::format("{}.items is NULL but count = {}", field, ids.count));
  }
  std::vector<TokenId> all = eos_token_ids_;
  for (uint64_t i = 0; i < ids.count; ++i) {
    if (ids.items[i] < 0 || ids.items[i] >= vocab_size_) {
      return Invalid(field, fmt::format("{}[{}] = {} is outside 0 .. {}", field, i, ids.items[i],
                                        vocab_size_ - 1));
    }
    all.push_back(ids.items[i]);
  }
  return all;
}

}  // namespace specd
