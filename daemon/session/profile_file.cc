#include "daemon/session/profile_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "detokenizer/open_regular_file.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/nearest_name.h"
#include "speculative/grammar/base/json_value.h"
#include "speculative/params/param_rules.h"
#include "speculative/params/param_table.h"

namespace specd {
namespace {

using grammar::JsonType;
using grammar::JsonValue;

constexpr size_t kFileBytesMax = size_t{64} << 10;

// The names of vLLM's reasoning parsers whose models close a thought with a fixed text.
struct ReasoningParser {
  std::string_view name;
  std::string_view start;
  std::string_view end;
};
constexpr ReasoningParser kReasoningParsers[] = {
    {"deepseek_r1", "<think>", "</think>"}, {"qwen3", "<think>", "</think>"},
    {"glm45", "<think>", "</think>"},       {"step3", "", "</think>"},
    {"mistral", "[THINK]", "[/THINK]"},     {"seed_oss", "<seed:think>", "</seed:think>"},
};

// One reader for each key. A reader that fails leaves its status behind.
class ProfileReader {
 public:
  ProfileReader(const JsonValue& root, const std::string& path) : root_(root), path_(path) {}

  absl::StatusOr<ModelProfileOptions> Read();

 private:
  using Reader = void (ProfileReader::*)(std::string_view name, const JsonValue& value);
  struct Key {
    std::string_view name;
    Reader read;
  };
  static std::span<const Key> Keys();

  void Tokenizer(std::string_view name, const JsonValue& value);
  void VocabSize(std::string_view name, const JsonValue& value);
  void EosTokens(std::string_view name, const JsonValue& value);
  void EosTokenIds(std::string_view name, const JsonValue& value);
  void Marker(std::string_view name, const JsonValue& value);
  void ReasoningParserName(std::string_view name, const JsonValue& value);
  void ThinkingId(std::string_view name, const JsonValue& value);
  void ThinkingEndIds(std::string_view name, const JsonValue& value);
  void Scaling(std::string_view name, const JsonValue& value);
  void Flag(std::string_view name, const JsonValue& value);
  void Choice(std::string_view name, const JsonValue& value);

  void Unknown(std::string_view name, const JsonValue& value);
  void Fail(const JsonValue& value, std::string_view text);
  bool IsOf(JsonType type, const JsonValue& value);
  std::optional<int32_t> Integer(const JsonValue& value);
  std::vector<TokenId> Ids(const JsonValue& value);
  void UseParser();

  const JsonValue& root_;
  const std::string& path_;
  absl::Status status_;
  ModelProfileOptions out_;
  const JsonValue* parser_ = nullptr;  // the value of reasoning_parser
};

std::span<const ProfileReader::Key> ProfileReader::Keys() {
  using R = ProfileReader;
  static constexpr Key kKeys[] = {
      {"tokenizer", &R::Tokenizer},
      {"vocab_size", &R::VocabSize},
      {"eos_tokens", &R::EosTokens},
      {"eos_token_ids", &R::EosTokenIds},
      {"reasoning_start", &R::Marker},
      {"reasoning_end", &R::Marker},
      {"reasoning_parser", &R::ReasoningParserName},
      {"thinking_start_id", &R::ThinkingId},
      {"thinking_end_ids", &R::ThinkingEndIds},
      {"thinking_newline_id", &R::ThinkingId},
      {"scale", &R::Scaling},
      {"cap", &R::Scaling},
      {"grammar_whitespace", &R::Choice},
      {"grammar_key_order", &R::Choice},
      {"grammar_in_reasoning", &R::Flag},
      {"grammar_lenient", &R::Flag},
  };
  return kKeys;
}

absl::StatusOr<ModelProfileOptions> ProfileReader::Read() {
  if (!root_.IsObject()) {
    Fail(root_, fmt::format("a model profile is an object, not {}", NameWithArticle(root_.type)));
  }
  for (size_t i = 0; status_.ok() && i < root_.values.size(); ++i) {
    const std::string& name = root_.names[i];
    Reader read = &ProfileReader::Unknown;
    for (const Key& key : Keys()) {
      if (key.name == name) read = key.read;
    }
    (this->*read)(name, root_.values[i]);
  }
  if (status_.ok() && parser_ != nullptr) UseParser();
  if (!status_.ok()) return status_;
  return std::move(out_);
}

void ProfileReader::Fail(const JsonValue& value, std::string_view text) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(fmt::format("{}: {}: {}", path_, PointerOf(value), text));
}

void ProfileReader::Unknown(std::string_view name, const JsonValue& value) {
  if (const std::optional<std::string> why = RefusedParam(name); why.has_value()) {
    return Fail(value, *why);
  }
  std::vector<std::string_view> names;
  for (const Key& key : Keys()) names.push_back(key.name);
  Fail(value, fmt::format("{} is no key of a model profile{}; they are {}",
                          name.substr(0, kNearNameBytesMax), DidYouMean(name, names),
                          fmt::join(names, ", ")));
}

bool ProfileReader::IsOf(JsonType type, const JsonValue& value) {
  if (value.type == type) return true;
  Fail(value,
       fmt::format("expected {}, found {}", NameWithArticle(type), NameWithArticle(value.type)));
  return false;
}

std::optional<int32_t> ProfileReader::Integer(const JsonValue& value) {
  if (!IsOf(JsonType::kNumber, value)) return std::nullopt;
  int32_t number = 0;
  if (absl::SimpleAtoi(value.text, &number)) return number;
  Fail(value, fmt::format("{} is no integer of 32 bits", value.text.substr(0, 40)));
  return std::nullopt;
}

std::vector<TokenId> ProfileReader::Ids(const JsonValue& value) {
  std::vector<TokenId> ids;
  if (!IsOf(JsonType::kArray, value)) return ids;
  for (const JsonValue& item : value.values) {
    if (const std::optional<int32_t> id = Integer(item); id.has_value()) ids.push_back(*id);
  }
  return ids;
}

void ProfileReader::Tokenizer(std::string_view, const JsonValue& value) {
  if (!IsOf(JsonType::kString, value)) return;
  if (value.text.empty()) return Fail(value, "the path is empty; leave the key out");
  const size_t slash = path_.rfind('/');
  const bool is_beside = value.text.front() != '/' && slash != std::string::npos;
  out_.tokenizer_path = (is_beside ? path_.substr(0, slash + 1) : std::string()) + value.text;
}

void ProfileReader::VocabSize(std::string_view, const JsonValue& value) {
  if (const std::optional<int32_t> size = Integer(value); size.has_value()) {
    out_.vocab_size = *size;
  }
}

void ProfileReader::EosTokens(std::string_view, const JsonValue& value) {
  if (!IsOf(JsonType::kArray, value)) return;
  for (const JsonValue& item : value.values) {
    if (IsOf(JsonType::kString, item)) out_.eos_tokens.push_back(item.text);
  }
}

void ProfileReader::EosTokenIds(std::string_view, const JsonValue& value) {
  out_.eos_token_ids = Ids(value);
}

void ProfileReader::Marker(std::string_view name, const JsonValue& value) {
  if (!IsOf(JsonType::kString, value)) return;
  (name == "reasoning_start" ? out_.reasoning.start : out_.reasoning.end) = value.text;
}

void ProfileReader::ReasoningParserName(std::string_view, const JsonValue& value) {
  if (IsOf(JsonType::kString, value)) parser_ = &value;
}

// The parser stands for the markers that the profile does not name itself.
void ProfileReader::UseParser() {
  const std::string remedy =
      "name the text that ends the model's reasoning in reasoning_end, and leave reasoning_parser "
      "out";
  for (const ReasoningParser& parser : kReasoningParsers) {
    if (parser.name != parser_->text) continue;
    for (const auto& [own, known] :
         {std::pair{&out_.reasoning.start, parser.start}, {&out_.reasoning.end, parser.end}}) {
      if (own->empty() || known.empty() || *own == known) continue;
      return Fail(*parser_, fmt::format("reasoning_parser = {} stands for {}, but the profile "
                                        "names {}; leave one of them out",
                                        parser.name, known, *own));
    }
    if (out_.reasoning.end.empty()) {
      // A start without an end would be refused by LoadModelProfile.
      out_.reasoning = {std::string(parser.start), std::string(parser.end)};
      out_.reasoning_must_be_added = true;
    }
    return;
  }
  std::vector<std::string_view> names;
  for (const ReasoningParser& parser : kReasoningParsers) names.push_back(parser.name);
  Fail(*parser_, fmt::format("reasoning_parser = {} is not known here{} (known are {}); {}",
                             parser_->text.substr(0, kNearNameBytesMax),
                             DidYouMean(parser_->text, names), fmt::join(names, ", "), remedy));
}

void ProfileReader::ThinkingId(std::string_view name, const JsonValue& value) {
  const std::optional<int32_t> id = Integer(value);
  if (!id.has_value()) return;
  (name == "thinking_start_id" ? out_.thinking.start_id : out_.thinking.newline_id) = *id;
}

void ProfileReader::ThinkingEndIds(std::string_view, const JsonValue& value) {
  out_.thinking.end_ids = Ids(value);
}

void ProfileReader::Scaling(std::string_view name, const JsonValue& value) {
  if (!IsOf(JsonType::kNumber, value)) return;
  double number = 0;
  const bool is_scale = name == "scale";
  // Kernels have both as float.
  const bool is_read =
      absl::SimpleAtod(value.text, &number) && std::isfinite(static_cast<float>(number));
  if (!is_read || (is_scale ? !(static_cast<float>(number) > 0) : number < 0)) {
    return Fail(value, fmt::format("{} = {} must be {}", name, value.text.substr(0, 40),
                                   is_scale ? "above 0" : "0 (none) or more"));
  }
  (is_scale ? out_.scale : out_.cap) = number;
}

void ProfileReader::Flag(std::string_view name, const JsonValue& value) {
  if (IsOf(JsonType::kBoolean, value)) out_.grammar.emplace_back(name, value.boolean ? 1 : 0);
}

void ProfileReader::Choice(std::string_view name, const JsonValue& value) {
  if (!IsOf(JsonType::kString, value)) return;
  const std::span<const std::string_view> choices = FindParam(name)->choices;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] != value.text) continue;
    out_.grammar.emplace_back(name, static_cast<double>(i));
    return;
  }
  Fail(value, fmt::format("{} = {} is none of {}", name, value.text.substr(0, kNearNameBytesMax),
                          fmt::join(choices, ", ")));
}

}  // namespace

absl::StatusOr<ModelProfileOptions> ParseProfile(std::string_view json, const std::string& path) {
  const auto document = grammar::ParseJson(json);
  if (!document.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}", path, std::string(document.status().message())));
  }
  return ProfileReader(**document, path).Read();
}

absl::StatusOr<ModelProfileOptions> ReadProfileFile(const std::string& path) {
  constexpr FileRole kRole = {.what = "the model profile", .example = "JSON file"};
  const absl::StatusOr<OpenedFile> file = OpenRegularFile(path, kRole);
  std::string json(kFileBytesMax + 1, '\0');
  absl::Status status = file.status();
  if (status.ok()) {
    json.resize(std::fread(json.data(), 1, json.size(), file->get()));
    if (std::ferror(file->get()) != 0) status = UnreadableFile(path, kRole, errno);
  }
  if (!status.ok()) return absl::InvalidArgumentError(status.message());
  if (json.size() > kFileBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a model profile has at most {} bytes; is this another file of the model?",
                    path, kFileBytesMax));
  }
  return ParseProfile(json, path);
}

}  // namespace specd
