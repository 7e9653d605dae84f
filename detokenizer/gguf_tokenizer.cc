#include "detokenizer/gguf_tokenizer.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "detokenizer/byte_level.h"
#include "detokenizer/decoder_steps.h"
#include "detokenizer/gguf_reader.h"
#include "detokenizer/json_words.h"
#include "detokenizer/sentence_piece_model.h"
#include "detokenizer/text_lines.h"

namespace specd {
namespace {

// Keys may hold chat templates and merges, too. The largest files in use have under 32 MiB.
constexpr size_t kMetadataSizeBytesMax = size_t{256} << 20;

class Loader {
 public:
  Loader(std::FILE* file, std::string_view name)
      : name_(name), reader_(file, name, kMetadataSizeBytesMax) {}

  absl::StatusOr<Vocabulary> Load();

 private:
  void ReadValue(std::string_view key);
  absl::Status CheckModel() const;
  absl::Status AddTokens();
  absl::Status AddToken(TokenId id);
  FrontSpaces Spaces() const {
    return {.strips_first = adds_space_.value_or(true), .strips_all = removes_spaces_};
  }
  bool IsNamedSpecial(TokenId id) const { return id == bos_id_ || id == eos_id_; }

  absl::Status Invalid(std::string_view message) const {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}; convert the model again", name_, message));
  }

  const std::string_view name_;
  GgufReader reader_;
  std::string model_;
  std::string texts_;  // of all tokens
  std::vector<size_t> ends_;
  std::vector<uint8_t> types_;
  std::optional<bool> adds_space_;
  bool removes_spaces_ = false;
  int64_t bos_id_ = -1;
  int64_t eos_id_ = -1;
  Vocabulary::Builder builder_;
};

absl::StatusOr<Vocabulary> Loader::Load() {
  if (absl::Status status = reader_.ReadHeader(); !status.ok()) return status;
  constexpr std::string_view kPrefix = "tokenizer.ggml.";
  while (reader_.Next()) {
    const std::string_view key = reader_.key();
    if (key.substr(0, kPrefix.size()) == kPrefix) ReadValue(key.substr(kPrefix.size()));
  }
  if (!reader_.status().ok()) return reader_.status();
  if (absl::Status status = CheckModel(); !status.ok()) return status;
  if (absl::Status status = AddTokens(); !status.ok()) return status;
  return std::move(builder_).Build();
}

// What fails is in the reader's status.
void Loader::ReadValue(std::string_view key) {
  if (key == "model") reader_.ReadString(&model_);
  if (key == "tokens") {
    texts_.clear();
    ends_.clear();
    reader_.ReadStrings(kVocabSizeMax, [this](std::string_view text) {
      texts_ += text;
      ends_.push_back(texts_.size());
      return absl::OkStatus();
    });
  }
  if (key == "token_type") {
    types_.clear();
    reader_.ReadIntegers(kVocabSizeMax, [this](int64_t type) {
      types_.push_back(type >= 0 && type <= UINT8_MAX ? static_cast<uint8_t>(type) : 0);
      return absl::OkStatus();
    });
  }
  bool value = false;
  if (key == "add_space_prefix" && reader_.ReadBool(&value)) adds_space_ = value;
  if (key == "remove_extra_whitespaces") reader_.ReadBool(&removes_spaces_);
  if (key == "bos_token_id") reader_.ReadInteger(&bos_id_);
  if (key == "eos_token_id") reader_.ReadInteger(&eos_id_);
}

absl::Status Loader::CheckModel() const {
  if (model_.empty()) {
    return Invalid("tokenizer.ggml.model is missing: this GGUF file has no tokenizer");
  }
  if (model_ != "llama" && model_ != "t5" && model_ != "gpt2") {
    return absl::UnimplementedError(
        fmt::format("{}: tokenizer.ggml.model is {}, known are \"llama\", \"t5\" and \"gpt2\"; {}",
                    name_, QuoteBytes(model_), kReadableTokenizers));
  }
  if (ends_.empty()) return Invalid("tokenizer.ggml.tokens is missing or empty");
  if (types_.empty() || types_.size() == ends_.size()) return absl::OkStatus();
  return Invalid(
      fmt::format("tokenizer.ggml.token_type has {} elements, but tokenizer.ggml.tokens {}",
                  types_.size(), ends_.size()));
}

absl::Status Loader::AddTokens() {
  for (size_t i = 0; i < ends_.size(); ++i) {
    if (absl::Status status = AddToken(static_cast<TokenId>(i)); !status.ok()) return status;
  }
  if (model_ != "gpt2") builder_.SetTextRules(SentencePieceRules(Spaces()));
  return absl::OkStatus();
}

// An unused token fills a place of the model's matrix. It has no text, as in llama.cpp.
absl::Status Loader::AddToken(TokenId id) {
  const size_t index = id;
  const size_t begin = index == 0 ? 0 : ends_[index - 1];
  const std::string_view text = std::string_view(texts_).substr(begin, ends_[index] - begin);
  const PieceType type =
      types_.empty() ? PieceType::kNormal : static_cast<PieceType>(types_[index]);
  if (type < PieceType::kNormal || type > PieceType::kByte) {
    return Invalid(fmt::format("tokenizer.ggml.token_type[{}] is {}, known are 1..6", id,
                               static_cast<int>(type)));
  }
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    return Invalid(fmt::format("tokenizer.ggml.tokens[{}] is no UTF-8", id));
  }
  if (type == PieceType::kUnused) return absl::OkStatus();
  if (type == PieceType::kControl || type == PieceType::kUnknown || IsNamedSpecial(id)) {
    builder_.Set(id, text, {.added = true, .special = true});
    return absl::OkStatus();
  }
  const bool is_added = type == PieceType::kUserDefined;
  const std::optional<char> byte = ByteOfPiece(text);
  if (model_ == "gpt2") {
    builder_.Set(id, is_added ? std::string(text) : ByteLevelBytes(text), {.added = is_added});
  } else if (type == PieceType::kByte && byte.has_value()) {
    builder_.Set(id, {&*byte, 1}, {});
  } else if (type == PieceType::kByte) {
    return Invalid(fmt::format(
        "tokenizer.ggml.tokens[{}] is {}, expected a byte such as \"<0x0A>\"", id, Quote(text)));
  } else {
    AddSentencePiece(id, text, {.added = is_added}, Spaces(), &builder_);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Vocabulary> ReadGgufTokenizer(std::FILE* file, std::string_view name) {
  return Loader(file, name).Load();
}

}  // namespace specd
