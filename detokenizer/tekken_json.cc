#include "detokenizer/tekken_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "detokenizer/json_words.h"

namespace specd {
namespace {

using simdjson::dom::element;

// Those of mistral-common 1.x that have a tekken.json. Their files decode alike.
constexpr std::string_view kVersions[] = {"v3", "v7", "v11", "v13", "v15"};

// The special tokens of files up to v7 that list none, as in mistral-common's <tekken.py>.
constexpr std::string_view kEarlySpecialTokens[] = {"<unk>",
                                                    "<s>",
                                                    "</s>",
                                                    "[INST]",
                                                    "[/INST]",
                                                    "[AVAILABLE_TOOLS]",
                                                    "[/AVAILABLE_TOOLS]",
                                                    "[TOOL_RESULTS]",
                                                    "[/TOOL_RESULTS]",
                                                    "[TOOL_CALLS]",
                                                    "[IMG]",
                                                    "<pad>",
                                                    "[IMG_BREAK]",
                                                    "[IMG_END]",
                                                    "[PREFIX]",
                                                    "[MIDDLE]",
                                                    "[SUFFIX]",
                                                    "[SYSTEM_PROMPT]",
                                                    "[/SYSTEM_PROMPT]",
                                                    "[TOOL_CONTENT]"};

class TekkenReader {
 public:
  TekkenReader(const JsonRoot& file, std::string_view name) : root_(file.root()), name_(name) {}

  absl::StatusOr<Vocabulary> Read();

 private:
  absl::Status ReadConfig();
  absl::Status ReadVersion(const element& config);
  absl::Status ReadCount(const element& config, std::string_view key, int64_t* count) const;
  absl::Status ReadSpecialTokens();
  absl::Status ReadVocab();
  absl::Status ReadToken(const element& token, int64_t index);

  absl::Status Invalid(std::string_view message) const {
    return absl::InvalidArgumentError(fmt::format("{}: {}", name_, message));
  }

  const element root_;
  const std::string_view name_;
  std::string_view version_;
  int64_t num_ids_ = 0;
  int64_t num_special_ = 0;
  Vocabulary::Builder builder_;
};

absl::StatusOr<Vocabulary> TekkenReader::Read() {
  if (absl::Status status = ReadConfig(); !status.ok()) return status;
  if (absl::Status status = ReadSpecialTokens(); !status.ok()) return status;
  if (absl::Status status = ReadVocab(); !status.ok()) return status;
  return std::move(builder_).Build();
}

absl::Status TekkenReader::ReadConfig() {
  element config;
  if (root_["config"].get(config)) return Invalid("config is missing; download the file again");
  if (absl::Status status = ReadVersion(config); !status.ok()) return status;
  if (absl::Status s = ReadCount(config, "default_vocab_size", &num_ids_); !s.ok()) return s;
  if (absl::Status s = ReadCount(config, "default_num_special_tokens", &num_special_); !s.ok()) {
    return s;
  }
  if (num_special_ <= num_ids_) return absl::OkStatus();
  return Invalid(
      fmt::format("config.default_num_special_tokens is {}, and config.default_vocab_size only {}; "
                  "download the file again",
                  num_special_, num_ids_));
}

absl::Status TekkenReader::ReadVersion(const element& config) {
  element version;
  if (config["version"].get(version)) {
    return Invalid("config.version is missing; download the file again");
  }
  if (!version.get(version_) &&
      std::find(std::begin(kVersions), std::end(kVersions), version_) != std::end(kVersions)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(fmt::format(
      "{}: this is a tekken file of version {}, known are {}; use the tokenizer.json of "
      "the model",
      name_, Describe(version), fmt::join(kVersions, ", ")));
}

absl::Status TekkenReader::ReadCount(const element& config, std::string_view key,
                                     int64_t* count) const {
  element value;
  if (config[key].get(value)) {
    return Invalid(fmt::format("config.{} is missing; download the file again", key));
  }
  if (!value.get(*count) && *count >= 0 && *count <= kVocabSizeMax) return absl::OkStatus();
  return Invalid(fmt::format("config.{} is {}, allowed are integers 0..{}; download the file again",
                             key, Describe(value), kVocabSizeMax));
}

absl::Status TekkenReader::ReadSpecialTokens() {
  const TokenFlags flags{.added = true, .special = true};
  const auto check_rank = [this](const element& value, int64_t index) -> absl::Status {
    int64_t rank = 0;
    if (!value.get(rank) && rank == index && rank < num_special_) return absl::OkStatus();
    return Invalid(
        fmt::format("special_tokens[{}].rank is {}, expected {}, below "
                    "config.default_num_special_tokens = {}; download the file again",
                    index, Describe(value), index, num_special_));
  };
  int64_t index = 0;
  simdjson::dom::array tokens;
  if (!root_["special_tokens"].get(tokens)) {
    for (const element token : tokens) {
      element rank;
      std::string_view content;
      if (token["rank"].get(rank) || token["token_str"].get(content) ||
          content.size() > Vocabulary::kTokenSizeBytesMax) {
        return Invalid(
            fmt::format("special_tokens[{}] needs a rank and a token_str of at most {} "
                        "bytes; download the file again",
                        index, Vocabulary::kTokenSizeBytesMax));
      }
      if (absl::Status status = check_rank(rank, index); !status.ok()) return status;
      builder_.Set(static_cast<TokenId>(index++), content, flags);
    }
  } else if (version_ == "v3" || version_ == "v7") {
    for (const std::string_view content : kEarlySpecialTokens) {
      if (index < num_special_) builder_.Set(static_cast<TokenId>(index++), content, flags);
    }
  } else {
    return Invalid(fmt::format(
        "special_tokens is missing, which a file of version {} needs; download the file again",
        Quote(version_)));
  }
  for (; index < num_special_; ++index) {
    builder_.Set(static_cast<TokenId>(index), fmt::format("<SPECIAL_{}>", index), flags);
  }
  return absl::OkStatus();
}

absl::Status TekkenReader::ReadVocab() {
  simdjson::dom::array tokens;
  if (root_["vocab"].get(tokens)) {
    return Invalid("vocab is missing or not an array; download the file again");
  }
  const int64_t num_tokens = num_ids_ - num_special_;
  int64_t index = 0;
  for (const element token : tokens) {
    if (index == num_tokens) return absl::OkStatus();  // the model does not have the others
    if (absl::Status status = ReadToken(token, index++); !status.ok()) return status;
  }
  if (index == num_tokens) return absl::OkStatus();
  return Invalid(
      fmt::format("vocab has {} tokens, but config.default_vocab_size = {} less {} special tokens "
                  "are {}; download the file again",
                  index, num_ids_, num_special_, num_tokens));
}

absl::Status TekkenReader::ReadToken(const element& token, int64_t index) {
  int64_t rank = 0;
  std::string_view base64;
  if (token["rank"].get(rank) || rank != index || token["token_bytes"].get(base64)) {
    return Invalid(fmt::format(
        "vocab[{}] needs the rank {} and token_bytes; download the file again", index, index));
  }
  std::string bytes;
  if (!absl::Base64Unescape(absl::string_view(base64.data(), base64.size()), &bytes)) {
    return Invalid(
        fmt::format("vocab[{}].token_bytes is {}, expected base64; download the file "
                    "again",
                    index, Quote(base64)));
  }
  if (bytes.size() > Vocabulary::kTokenSizeBytesMax) {
    return Invalid(
        fmt::format("vocab[{}].token_bytes has {} bytes, allowed are 0..{}; download the "
                    "file again",
                    index, bytes.size(), Vocabulary::kTokenSizeBytesMax));
  }
  builder_.Set(static_cast<TokenId>(index + num_special_), bytes, {});
  return absl::OkStatus();
}

}  // namespace

bool IsTekken(const JsonRoot& file) {
  return file.Has("config") && file.Has("vocab") && !file.Has("model");
}

absl::StatusOr<Vocabulary> ReadTekken(const JsonRoot& file, std::string_view name) {
  return TekkenReader(file, name).Read();
}

}  // namespace specd
