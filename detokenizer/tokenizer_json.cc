#include "detokenizer/tokenizer_json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "detokenizer/json_words.h"
#include "detokenizer/piece_decoder.h"

namespace specd {
namespace {

using simdjson::dom::element;

class Loader {
 public:
  Loader(const element& root, std::string_view name) : root_(root), name_(name) {}

  absl::StatusOr<Vocabulary> Load();

 private:
  absl::Status CheckVersion() const;
  absl::Status ReadDecoder();
  absl::Status CheckModelType(const element& model) const;
  absl::Status ReadAddedTokens();
  absl::Status ReadAddedToken(const element& token, std::string_view field);
  absl::Status ReadVocab();
  absl::Status ReadVocabToken(std::string_view content, const element& id_value);
  absl::Status ReadPieces(const simdjson::dom::array& pieces);
  absl::Status AddPiece(std::string_view content, TokenId id);
  absl::Status Set(TokenId id, std::string_view content, std::string_view field, TokenFlags flags);
  absl::StatusOr<TokenId> ReadId(const element& value, std::string_view field) const;

  absl::Status Invalid(std::string_view message) const {
    return absl::InvalidArgumentError(fmt::format("{}: {}", name_, message));
  }
  absl::Status Unsupported(std::string_view message) const {
    return absl::UnimplementedError(fmt::format("{}: {}", name_, message));
  }

  const element root_;  // its parser owns the strings that the members below point into
  const std::string_view name_;
  std::optional<PieceDecoder> decoder_;
  Vocabulary::Builder builder_;
  absl::flat_hash_map<TokenId, std::string_view> content_of_;
  absl::flat_hash_set<std::string_view> special_contents_;
};

absl::StatusOr<Vocabulary> Loader::Load() {
  if (absl::Status status = CheckVersion(); !status.ok()) return status;
  if (absl::Status status = ReadDecoder(); !status.ok()) return status;
  if (absl::Status status = ReadAddedTokens(); !status.ok()) return status;
  if (absl::Status status = ReadVocab(); !status.ok()) return status;
  return std::move(builder_).Build();
}

absl::Status Loader::CheckVersion() const {
  element version;
  if (root_["version"].get(version)) {
    return Invalid(
        "version is missing, expected \"1.0\"; name the tokenizer.json that Hugging Face "
        "tokenizers has written");
  }
  std::string_view text;
  if (!version.get(text) && text == "1.0") return absl::OkStatus();
  return Unsupported(fmt::format(
      "version is {}, supported is \"1.0\"; save the tokenizer again with a release of Hugging "
      "Face tokenizers that writes version 1.0",
      Describe(version)));
}

absl::Status Loader::ReadDecoder() {
  absl::StatusOr<PieceDecoder> decoder = PieceDecoder::Read(root_);
  if (!decoder.ok()) {
    return absl::Status(decoder.status().code(),
                        fmt::format("{}: {}", name_, std::string(decoder.status().message())));
  }
  decoder_ = *std::move(decoder);
  builder_.SetTextRules(decoder_->text_rules());
  return absl::OkStatus();
}

// The first files of GPT-2 have no type. specd recognises a BPE model by its merges, as Hugging
// Face tokenizers do.
absl::Status Loader::CheckModelType(const element& model) const {
  element type;
  if (model["type"].get(type)) {
    if (model["merges"].error() == simdjson::SUCCESS) return absl::OkStatus();
    return Unsupported(
        fmt::format("model.type is missing, and without model.merges the model is "
                    "not BPE; {}",
                    kReadableTokenizers));
  }
  constexpr std::string_view kTypes[] = {"BPE", "Unigram", "WordPiece", "WordLevel"};
  std::string_view text;
  if (!type.get(text) &&
      std::find(std::begin(kTypes), std::end(kTypes), text) != std::end(kTypes)) {
    return absl::OkStatus();
  }
  return Unsupported(fmt::format("model.type is {}; {}", Describe(type), kReadableTokenizers));
}

absl::StatusOr<TokenId> Loader::ReadId(const element& value, std::string_view field) const {
  int64_t id = 0;
  if (value.get(id) || id < 0 || id >= kVocabSizeMax) {
    return Invalid(
        fmt::format("{} is {}, allowed are integers 0..{}; mend the id in the file, or "
                    "download it again",
                    field, Describe(value), kVocabSizeMax - 1));
  }
  return static_cast<TokenId>(id);
}

absl::Status Loader::Set(TokenId id, std::string_view content, std::string_view field,
                         TokenFlags flags) {
  const absl::StatusOr<PieceText> text = decoder_->Decode(content, flags.added);
  if (!text.ok()) return Unsupported(std::string(text.status().message()));
  const size_t size_bytes = std::max(text->bytes.size(), text->front.size());
  if (size_bytes > Vocabulary::kTokenSizeBytesMax) {
    return Invalid(
        fmt::format("{} is a token of {} bytes, allowed are 0..{}; take the entry out of "
                    "the file",
                    field, size_bytes, Vocabulary::kTokenSizeBytesMax));
  }
  builder_.Set(id, text->bytes, flags);
  builder_.SetFront(id, text->front);
  return absl::OkStatus();
}

absl::Status Loader::ReadAddedTokens() {
  element added_tokens;
  if (root_["added_tokens"].get(added_tokens) || added_tokens.is_null()) return absl::OkStatus();
  simdjson::dom::array tokens;
  if (added_tokens.get(tokens)) {
    return Invalid(fmt::format("added_tokens is {}, expected an array; download the file again",
                               Describe(added_tokens)));
  }
  size_t index = 0;
  for (const element token : tokens) {
    const std::string field = fmt::format("added_tokens[{}]", index++);
    if (absl::Status status = ReadAddedToken(token, field); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Loader::ReadAddedToken(const element& token, std::string_view field) {
  element id_value;
  std::string_view content;
  bool special = false;
  if (token["id"].get(id_value)) {
    return Invalid(fmt::format("{}.id is missing; download the file again", field));
  }
  if (token["content"].get(content)) {
    return Invalid(
        fmt::format("{}.content is missing or not a string; download the file again", field));
  }
  if (token["special"].get(special)) {
    return Invalid(
        fmt::format("{}.special is missing or not true or false for {}; add it to the "
                    "file",
                    field, Quote(content)));
  }
  const absl::StatusOr<TokenId> id = ReadId(id_value, fmt::format("{}.id", field));
  if (!id.ok()) return id.status();
  const auto [entry, is_new] = content_of_.emplace(*id, content);
  if (is_new) {
    if (special) special_contents_.insert(content);
    return Set(*id, content, fmt::format("{}.content", field), {.added = true, .special = special});
  }
  if (entry->second != content) {
    return Invalid(
        fmt::format("{}.id is {} for {}, but that id already stands for {}; give each "
                    "added token an id of its own",
                    field, *id, Quote(content), Quote(entry->second)));
  }
  if (special_contents_.contains(content) == special) return absl::OkStatus();
  return Invalid(
      fmt::format("{}.special is {} for {}, but an earlier entry says {}; take one of "
                  "the two out of the file",
                  field, special, Quote(content), !special));
}

absl::Status Loader::ReadVocab() {
  element model;
  if (root_["model"].get(model) || !model.is_object()) {
    return Invalid("model is missing or not an object; download the file again");
  }
  if (absl::Status status = CheckModelType(model); !status.ok()) return status;
  simdjson::dom::array pieces;
  std::string_view type;
  if (!model["type"].get(type) && type == "Unigram") {
    if (!model["vocab"].get(pieces)) return ReadPieces(pieces);
    return Invalid("model.vocab is missing or not an array of pieces; download the file again");
  }
  simdjson::dom::object vocab;
  if (model["vocab"].get(vocab)) {
    return Invalid(
        "model.vocab is missing or not an object of token to id; download the file again");
  }
  for (const auto& [content, id_value] : vocab) {
    if (absl::Status status = ReadVocabToken(content, id_value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// A Unigram model lists pairs of a piece and its score. The id is the index.
absl::Status Loader::ReadPieces(const simdjson::dom::array& pieces) {
  int64_t index = 0;
  for (const element pair : pieces) {
    std::string_view content;
    if (pair.at(0).get(content)) {
      return Invalid(
          fmt::format("model.vocab[{}] is {}, expected a pair of a piece and its score; download "
                      "the file again",
                      index, Describe(pair)));
    }
    if (index >= kVocabSizeMax) {
      return Invalid(
          fmt::format("model.vocab has more than {} pieces; use another tokenizer", kVocabSizeMax));
    }
    if (absl::Status status = AddPiece(content, static_cast<TokenId>(index++)); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Loader::ReadVocabToken(std::string_view content, const element& id_value) {
  const absl::StatusOr<TokenId> id = ReadId(id_value, "");
  if (!id.ok()) {
    return ReadId(id_value, fmt::format("model.vocab[{}]", Quote(content))).status();
  }
  return AddPiece(content, *id);
}

absl::Status Loader::AddPiece(std::string_view content, TokenId id) {
  const auto [entry, is_new] = content_of_.emplace(id, content);
  if (is_new) {
    // Hugging Face knows special tokens by their text. An entry of the model with the same text is
    // therefore special too.
    const bool special = special_contents_.contains(content);
    return Set(id, content, "model.vocab[...]", {.added = false, .special = special});
  }
  if (entry->second == content) return absl::OkStatus();  // the added token's literal content wins
  return Invalid(
      fmt::format("model.vocab[{}] is {}, but that id already stands for {}; give each token an id "
                  "of its own",
                  Quote(content), id, Quote(entry->second)));
}

}  // namespace

absl::StatusOr<Vocabulary> ReadTokenizerJson(const JsonRoot& file, std::string_view name) {
  return Loader(file.root(), name).Load();
}

}  // namespace specd
