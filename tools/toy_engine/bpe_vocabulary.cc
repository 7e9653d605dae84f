#include "tools/toy_engine/bpe_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "simdjson.h"
#include "tools/toy_engine/utf8.h"

namespace specd::toy {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// Ids index tables, so a file may not name an id that would make the tables huge.
constexpr int64_t kVocabSizeMax = 1 << 20;  // the limit of specd_options.vocab_size

absl::Status Invalid(std::string message) {
  return absl::InvalidArgumentError("tokenizer: " + std::move(message));
}

// GPT-2 writes each byte as one printable character: bytes that print as themselves stand for
// themselves, the others are numbered from U+0100 in ascending order.
bool PrintsAsItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

std::array<int32_t, 0x144> MakeByteOfCodePoint() {
  std::array<int32_t, 0x144> byte_of;
  byte_of.fill(-1);
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    byte_of[PrintsAsItself(byte) ? byte : next++] = static_cast<int32_t>(byte);
  }
  return byte_of;
}

std::optional<std::string> BytesOf(std::string_view token) {
  static const std::array<int32_t, 0x144> byte_of = MakeByteOfCodePoint();
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const Utf8Char c = DecodeUtf8(token, i);
    if (!c.valid || c.code_point >= byte_of.size() || byte_of[c.code_point] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(byte_of[c.code_point]);
    i += c.size_bytes;
  }
  return bytes;
}

// Absent and null mean the same in this format.
bool IsNull(element parent, const char* key) {
  element value;
  return parent[key].get(value) != simdjson::SUCCESS || value.is_null();
}

bool IsString(element parent, const char* key, std::string_view wanted) {
  std::string_view value;
  return parent[key].get(value) == simdjson::SUCCESS && value == wanted;
}

bool IsBool(element parent, const char* key, bool wanted, bool if_absent) {
  if (IsNull(parent, key)) return wanted == if_absent;
  bool value;
  return parent[key].get(value) == simdjson::SUCCESS && value == wanted;
}

bool IsEmptyString(element parent, const char* key) {
  return IsNull(parent, key) || IsString(parent, key, "");
}

// Refuses by name every setting that BpeEncoder does not honour.
absl::Status CheckKind(element document) {
  element model, split;
  if (document["model"].get(model) != simdjson::SUCCESS || !IsString(model, "type", "BPE")) {
    return Invalid("model.type must be \"BPE\"; the toy engine knows no other model");
  }
  if (document["pre_tokenizer"].get(split) != simdjson::SUCCESS ||
      !IsString(split, "type", "ByteLevel") || !IsBool(split, "use_regex", true, true) ||
      !IsBool(split, "add_prefix_space", false, true)) {
    return Invalid(
        "pre_tokenizer must be ByteLevel with add_prefix_space false and use_regex true, as in "
        "GPT-2; the toy engine knows no other split");
  }
  if (!IsNull(document, "normalizer")) return Invalid("normalizer must be null");
  if (!IsNull(model, "dropout")) return Invalid("model.dropout must be null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!IsEmptyString(model, key)) return Invalid(fmt::format("model.{} must be empty", key));
  }
  for (const char* key : {"byte_fallback", "ignore_merges"}) {
    if (!IsBool(model, key, false, false)) {
      return Invalid(fmt::format("model.{} must be false", key));
    }
  }
  return absl::OkStatus();
}

// Fills one BpeVocabulary from one parsed document.
class VocabularyReader {
 public:
  explicit VocabularyReader(element document) : document_(document) {}

  absl::StatusOr<BpeVocabulary> Read();

 private:
  absl::Status ReadTokens();
  absl::Status ReadSpecialTokens();
  absl::Status ReadMerges();
  absl::Status AddMerge(int32_t rank, std::string_view left, std::string_view right);
  void SetBytes(int64_t id, std::string bytes);
  std::optional<int32_t> FindToken(std::string_view token) const;

  element document_;
  absl::flat_hash_map<std::string, int32_t> ids_;  // by the token as it is written in the file
  BpeVocabulary vocabulary_;
};

void VocabularyReader::SetBytes(int64_t id, std::string bytes) {
  const size_t index = static_cast<size_t>(id);
  if (index >= vocabulary_.bytes.size()) vocabulary_.bytes.resize(index + 1);
  vocabulary_.bytes[index] = std::move(bytes);
}

absl::Status VocabularyReader::ReadTokens() {
  object tokens;
  if (document_["model"]["vocab"].get(tokens) != simdjson::SUCCESS) {
    return Invalid("model.vocab must be an object of token: id");
  }
  vocabulary_.id_of_byte.fill(-1);
  for (const auto& [token, value] : tokens) {
    int64_t id;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= kVocabSizeMax) {
      return Invalid(
          fmt::format("model.vocab[\"{}\"] must be an id in 0 .. {}", token, kVocabSizeMax - 1));
    }
    ids_[std::string(token)] = static_cast<int32_t>(id);
    // A token that is no sequence of bytes can only be a special one and gives no text.
    std::string bytes = BytesOf(token).value_or("");
    if (bytes.size() == 1) {
      vocabulary_.id_of_byte[static_cast<uint8_t>(bytes.front())] = static_cast<int32_t>(id);
    }
    SetBytes(id, std::move(bytes));
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (vocabulary_.id_of_byte[byte] < 0) {
      return Invalid(
          fmt::format("model.vocab has no token for the byte 0x{:02X}; a byte-level vocabulary "
                      "needs all 256",
                      byte));
    }
  }
  return absl::OkStatus();
}

absl::Status VocabularyReader::ReadSpecialTokens() {
  if (IsNull(document_, "added_tokens")) return absl::OkStatus();
  array tokens;
  if (document_["added_tokens"].get(tokens) != simdjson::SUCCESS) {
    return Invalid("added_tokens must be an array");
  }
  for (element token : tokens) {
    int64_t id;
    std::string_view content;
    if (token["id"].get(id) != simdjson::SUCCESS || id < 0 || id >= kVocabSizeMax ||
        token["content"].get(content) != simdjson::SUCCESS) {
      return Invalid(fmt::format("every entry of added_tokens needs a content and an id in 0 .. {}",
                                 kVocabSizeMax - 1));
    }
    if (!IsBool(token, "special", true, false)) {
      return Invalid(fmt::format("the added token \"{}\" must be special", content));
    }
    SetBytes(id, "");
    vocabulary_.special_tokens[std::string(content)] = static_cast<int32_t>(id);
  }
  return absl::OkStatus();
}

std::optional<int32_t> VocabularyReader::FindToken(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

absl::Status VocabularyReader::AddMerge(int32_t rank, std::string_view left,
                                        std::string_view right) {
  const std::optional<int32_t> left_id = FindToken(left);
  const std::optional<int32_t> right_id = FindToken(right);
  const std::optional<int32_t> id = FindToken(fmt::format("{}{}", left, right));
  if (!left_id || !right_id || !id) {
    return Invalid(
        fmt::format("model.merges[{}] (\"{}\" \"{}\") is made of, or makes, a token "
                    "that is not in model.vocab",
                    rank, left, right));
  }
  vocabulary_.merges[PairKey(*left_id, *right_id)] = {rank, *id};
  return absl::OkStatus();
}

absl::Status VocabularyReader::ReadMerges() {
  array merges;
  if (document_["model"]["merges"].get(merges) != simdjson::SUCCESS) {
    return Invalid("model.merges must be an array");
  }
  int32_t rank = 0;
  for (element merge : merges) {
    // Written ["a", "b"] by tokenizers 0.20 and later, "a b" before.
    std::string_view left, right;
    array pair;
    if (merge.get(pair) == simdjson::SUCCESS && pair.size() == 2) {
      if (pair.at(0).get(left) || pair.at(1).get(right)) left = {};
    } else if (merge.get(left) == simdjson::SUCCESS) {
      const size_t space = left.find(' ');
      right = space == std::string_view::npos ? "" : left.substr(space + 1);
      left = left.substr(0, std::min(space, left.size()));
    }
    if (left.empty() || right.empty()) {
      return Invalid(fmt::format("model.merges[{}] must be [\"a\", \"b\"] or \"a b\"", rank));
    }
    if (absl::Status status = AddMerge(rank, left, right); !status.ok()) return status;
    ++rank;
  }
  return absl::OkStatus();
}

absl::StatusOr<BpeVocabulary> VocabularyReader::Read() {
  absl::Status status = CheckKind(document_);
  if (status.ok()) status = ReadTokens();
  if (status.ok()) status = ReadSpecialTokens();
  if (status.ok()) status = ReadMerges();
  if (!status.ok()) return status;
  return std::move(vocabulary_);
}

absl::StatusOr<BpeVocabulary> ReadDocument(simdjson::simdjson_result<element> parsed) {
  element document;
  if (const simdjson::error_code error = parsed.get(document); error != simdjson::SUCCESS) {
    return Invalid(fmt::format("not readable as JSON: {}", simdjson::error_message(error)));
  }
  return VocabularyReader(document).Read();
}

}  // namespace

absl::StatusOr<BpeVocabulary> LoadVocabulary(const std::string& path) {
  simdjson::dom::parser parser;
  absl::StatusOr<BpeVocabulary> vocabulary = ReadDocument(parser.load(path));
  if (vocabulary.ok()) return vocabulary;
  return absl::Status(vocabulary.status().code(),
                      fmt::format("{}: {}", path, std::string(vocabulary.status().message())));
}

absl::StatusOr<BpeVocabulary> ParseVocabulary(std::string_view json) {
  simdjson::dom::parser parser;
  return ReadDocument(parser.parse(json.data(), json.size()));
}

}  // namespace specd::toy
