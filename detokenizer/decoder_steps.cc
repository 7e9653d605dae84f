#include "detokenizer/decoder_steps.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "detokenizer/byte_level.h"
#include "detokenizer/json_words.h"

namespace specd {
namespace {

using simdjson::dom::element;
using Kind = DecoderStep::Kind;

constexpr std::pair<std::string_view, Kind> kKinds[] = {
    {"ByteLevel", Kind::kByteLevel}, {"ByteFallback", Kind::kByteFallback},
    {"Replace", Kind::kReplace},     {"Strip", Kind::kStrip},
    {"Fuse", Kind::kFuse},           {"Metaspace", Kind::kMetaspace},
    {"WordPiece", Kind::kWordPiece}, {"BPEDecoder", Kind::kSuffix},
};

// The value at `key` as text for an error.
std::string Shown(const element& object, std::string_view key) {
  element value;
  return object[key].get(value) ? "missing" : Describe(value);
}

absl::Status Refuse(const element& step, std::string_view field, std::string_view key,
                    std::string_view expected) {
  return UnsupportedDecoder(fmt::format("{}.{} is {}, {}", field, key, Shown(step, key), expected));
}

absl::Status ReadText(const element& step, std::string_view field, std::string_view key,
                      std::string* text) {
  std::string_view value;
  if (step[key].get(value)) return Refuse(step, field, key, "expected a string");
  *text = value;
  return absl::OkStatus();
}

// A count of characters or spaces.
absl::Status ReadCount(const element& step, std::string_view field, std::string_view key,
                       uint32_t* count) {
  constexpr int64_t kCountMax = 64;
  int64_t value = 0;
  if (step[key].get(value) || value < 0 || value > kCountMax) {
    return Refuse(step, field, key, fmt::format("allowed are 0..{}", kCountMax));
  }
  *count = static_cast<uint32_t>(value);
  return absl::OkStatus();
}

bool IsOneCharacter(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<uint8_t>(byte) & 0xC0) != 0x80 ? 1 : 0;
  return count == 1;
}

// A longer content would let a small file become a large table.
absl::Status ReadReplace(const element& step, std::string_view field, DecoderStep* read) {
  element pattern;
  if (step["pattern"].get(pattern)) return Refuse(step, field, "pattern", "expected a String");
  const std::string pattern_field = fmt::format("{}.pattern", field);
  if (absl::Status s = ReadText(pattern, pattern_field, "String", &read->from); !s.ok()) return s;
  if (read->from.empty()) return Refuse(pattern, pattern_field, "String", "expected some text");
  if (absl::Status s = ReadText(step, field, "content", &read->to); !s.ok()) return s;
  if (read->to.size() <= read->from.size()) return absl::OkStatus();
  return Refuse(step, field, "content",
                fmt::format("expected at most the {} bytes of the pattern", read->from.size()));
}

absl::Status ReadStrip(const element& step, std::string_view field, DecoderStep* read) {
  if (absl::Status s = ReadText(step, field, "content", &read->from); !s.ok()) return s;
  if (!IsOneCharacter(read->from)) {
    return Refuse(step, field, "content", "expected one character");
  }
  if (absl::Status s = ReadCount(step, field, "start", &read->start); !s.ok()) return s;
  return ReadCount(step, field, "stop", &read->stop);
}

// Early files have add_prefix_space alone: false is `never`, true is `always`.
absl::Status ReadMetaspace(const element& step, std::string_view field, DecoderStep* read) {
  if (absl::Status s = ReadText(step, field, "replacement", &read->from); !s.ok()) return s;
  if (!IsOneCharacter(read->from)) {
    return Refuse(step, field, "replacement", "expected one character");
  }
  bool adds_prefix = true;
  if (step["add_prefix_space"].get(adds_prefix)) adds_prefix = true;
  std::string scheme = adds_prefix ? "always" : "never";
  if (step["prepend_scheme"].error() == simdjson::SUCCESS) {
    if (absl::Status s = ReadText(step, field, "prepend_scheme", &scheme); !s.ok()) return s;
  }
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return Refuse(step, field, "prepend_scheme", "known are \"always\", \"first\", \"never\"");
  }
  if (!adds_prefix && scheme != "never") {
    return Refuse(step, field, "prepend_scheme", "but add_prefix_space is false");
  }
  read->is_first_other = scheme != "never";
  return absl::OkStatus();
}

absl::Status ReadWordPiece(const element& step, std::string_view field, DecoderStep* read) {
  if (absl::Status s = ReadText(step, field, "prefix", &read->from); !s.ok()) return s;
  if (!step["cleanup"].get(read->cleanup)) return absl::OkStatus();
  return Refuse(step, field, "cleanup", "expected true or false");
}

absl::Status ReadSuffix(const element& step, std::string_view field, DecoderStep* read) {
  if (absl::Status s = ReadText(step, field, "suffix", &read->from); !s.ok()) return s;
  if (!read->from.empty()) return absl::OkStatus();
  return Refuse(step, field, "suffix", "expected some text");
}

std::string Strip(std::string_view text, const DecoderStep& step) {
  for (uint32_t i = 0; i < step.start && text.substr(0, step.from.size()) == step.from; ++i) {
    text.remove_prefix(step.from.size());
  }
  for (uint32_t i = 0; i < step.stop && text.size() >= step.from.size() &&
                       text.substr(text.size() - step.from.size()) == step.from;
       ++i) {
    text.remove_suffix(step.from.size());
  }
  return std::string(text);
}

// As the clean-up of BERT's tokenizers, in this order.
std::string CleanUp(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kChanges) text = ReplaceAll(text, from, to);
  return text;
}

void ApplyWordPiece(const DecoderStep& step, PieceText* text) {
  if (text->bytes.compare(0, step.from.size(), step.from) == 0) {
    text->bytes.erase(0, step.from.size());
  } else {
    text->bytes.insert(0, " ");
  }
  if (!step.cleanup) return;
  text->bytes = CleanUp(std::move(text->bytes));
  text->front = CleanUp(std::move(text->front));
}

}  // namespace

absl::Status UnsupportedDecoder(std::string_view text) {
  return absl::UnimplementedError(fmt::format("{}; {}", text, kReadableTokenizers));
}

std::optional<char> ByteOfPiece(std::string_view piece) {
  constexpr size_t kSizeBytes = 6;
  uint32_t value = 0;
  if (piece.size() != kSizeBytes || piece.substr(0, 3) != "<0x" || piece.back() != '>' ||
      piece.find_first_not_of("0123456789abcdefABCDEF", 3) != kSizeBytes - 1 ||
      !absl::SimpleHexAtoi(absl::string_view(piece.data() + 3, 2), &value)) {
    return std::nullopt;
  }
  return static_cast<char>(value);
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string changed;
  while (true) {
    const size_t begin = text.find(from);
    changed += text.substr(0, begin);
    if (begin == std::string_view::npos) return changed;
    changed += to;
    text.remove_prefix(begin + from.size());
  }
}

absl::StatusOr<DecoderStep> ReadDecoderStep(const element& step, std::string_view field) {
  std::string_view type;
  const auto* kind = std::end(kKinds);
  if (!step["type"].get(type)) {
    for (kind = kKinds; kind != std::end(kKinds) && kind->first != type;) ++kind;
  }
  if (kind == std::end(kKinds)) {
    return UnsupportedDecoder(fmt::format("{}.type is {}", field, Shown(step, "type")));
  }
  DecoderStep read{.kind = kind->second};
  absl::Status status;
  if (read.kind == Kind::kReplace) status = ReadReplace(step, field, &read);
  if (read.kind == Kind::kStrip) status = ReadStrip(step, field, &read);
  if (read.kind == Kind::kMetaspace) status = ReadMetaspace(step, field, &read);
  if (read.kind == Kind::kWordPiece) status = ReadWordPiece(step, field, &read);
  if (read.kind == Kind::kSuffix) status = ReadSuffix(step, field, &read);
  if (!status.ok()) return status;
  return read;
}

void ApplyStep(const DecoderStep& step, PieceText* text) {
  const auto both = [text](const auto& change) {
    text->bytes = change(text->bytes);
    text->front = change(text->front);
  };
  switch (step.kind) {
    case Kind::kByteLevel:
      return both([](const std::string& piece) { return ByteLevelBytes(piece); });
    case Kind::kByteFallback:
      if (const std::optional<char> byte = ByteOfPiece(text->bytes)) {
        *text = {.bytes = {*byte}, .front = {*byte}, .is_byte = true};
      }
      return;
    case Kind::kReplace:
      return both([&](const std::string& piece) { return ReplaceAll(piece, step.from, step.to); });
    case Kind::kStrip:
      return both([&](const std::string& piece) { return Strip(piece, step); });
    case Kind::kMetaspace:
      text->bytes = ReplaceAll(text->bytes, step.from, " ");
      text->front = ReplaceAll(text->front, step.from, step.is_first_other ? "" : " ");
      return;
    case Kind::kWordPiece:
      return ApplyWordPiece(step, text);
    case Kind::kSuffix:
      return both([&](const std::string& piece) { return ReplaceAll(piece, step.from, " "); });
    case Kind::kJoinBySpace:
      text->bytes.insert(0, " ");
      return;
    case Kind::kFuse:
      return;
  }
}

}  // namespace specd
