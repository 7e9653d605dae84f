#include "detokenizer/piece_decoder.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "detokenizer/byte_level.h"
#include "detokenizer/json_words.h"

namespace specd {
namespace {

using simdjson::dom::element;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr int64_t kStrippedSpacesMax = 64;

absl::Status Invalid(std::string_view text) {
  return absl::InvalidArgumentError({text.data(), text.size()});
}

absl::Status Unsupported(std::string_view text) {
  return absl::UnimplementedError(fmt::format("{}; {}", text, kReadableTokenizers));
}

absl::Status CheckByteLevel(const element& decoder, std::string_view field) {
  element type;
  if (decoder["type"].get(type)) return Unsupported(fmt::format("{}.type is missing", field));
  std::string_view text;
  if (!type.get(text) && text == "ByteLevel") return absl::OkStatus();
  return Unsupported(fmt::format("{}.type is {}", field, Describe(type)));
}

// The value at `key` as text for an error.
std::string Shown(const element& object, std::string_view key) {
  element value;
  return object[key].get(value) ? "missing" : Describe(value);
}

// SentencePiece's decoder begins with the step that turns the marks of spaces into spaces.
absl::Status CheckReplace(const element& member) {
  std::string_view from;
  std::string_view to;
  element pattern;
  if (member["pattern"].get(pattern) || pattern["String"].get(from) || from != kSpaceMark) {
    return Unsupported(fmt::format(
        "decoder.decoders[0].pattern.String is {}, expected \"{}\"",
        member["pattern"].get(pattern) ? "missing" : Shown(pattern, "String"), kSpaceMark));
  }
  if (!member["content"].get(to) && to == " ") return absl::OkStatus();
  return Unsupported(
      fmt::format("decoder.decoders[0].content is {}, expected a space", Shown(member, "content")));
}

// The number of leading spaces that the last step takes.
absl::StatusOr<uint32_t> ReadStrip(const element& member) {
  std::string_view content;
  if (member["content"].get(content) || content != " ") {
    return Unsupported(fmt::format("decoder.decoders[3].content is {}, expected a space",
                                   Shown(member, "content")));
  }
  int64_t stop = 0;
  if (member["stop"].get(stop) || stop != 0) {
    return Unsupported(fmt::format(
        "decoder.decoders[3].stop is {}, expected 0: a text that is given out as it grows cannot "
        "lose its end",
        Shown(member, "stop")));
  }
  int64_t start = 0;
  if (member["start"].get(start) || start < 0 || start > kStrippedSpacesMax) {
    return Unsupported(fmt::format("decoder.decoders[3].start is {}, allowed are 0..{}",
                                   Shown(member, "start"), kStrippedSpacesMax));
  }
  return static_cast<uint32_t>(start);
}

std::string TypesOf(const simdjson::dom::array& members) {
  std::string types;
  for (const element member : members) {
    std::string_view type = "?";
    if (member["type"].get(type)) type = "?";
    types += types.empty() ? "" : ", ";
    types += type;
  }
  return types;
}

// The byte of a piece such as <0x0A>.
std::optional<char> ByteOf(std::string_view piece) {
  constexpr size_t kSizeBytes = 6;
  uint32_t value = 0;
  if (piece.size() != kSizeBytes || piece.substr(0, 3) != "<0x" || piece.back() != '>' ||
      piece.find_first_not_of("0123456789abcdefABCDEF", 3) != kSizeBytes - 1 ||
      !absl::SimpleHexAtoi(absl::string_view(piece.data() + 3, 2), &value)) {
    return std::nullopt;
  }
  return static_cast<char>(value);
}

}  // namespace

absl::StatusOr<PieceDecoder> PieceDecoder::Read(const element& root) {
  element decoder;
  if (root["decoder"].get(decoder) || decoder.is_null()) {
    return Unsupported(fmt::format("decoder is {}", root["decoder"].error() ? "missing" : "null"));
  }
  std::string_view type;
  if (!decoder["type"].get(type) && type == "Sequence") return ReadSequence(decoder);
  if (absl::Status status = CheckByteLevel(decoder, "decoder"); !status.ok()) return status;
  return PieceDecoder(true);
}

absl::StatusOr<PieceDecoder> PieceDecoder::ReadSequence(const element& decoder) {
  simdjson::dom::array members;
  if (decoder["decoders"].get(members)) {
    return Invalid(
        "decoder.decoders is missing or not an array, but decoder.type is \"Sequence\"; "
        "download the file again");
  }
  if (members.size() == 1) {
    const element only = members.at(0).value();
    if (absl::Status status = CheckByteLevel(only, "decoder.decoders[0]"); !status.ok()) {
      return status;
    }
    return PieceDecoder(true);
  }
  const std::string types = TypesOf(members);
  if (types == "Replace, ByteFallback, Fuse" || types == "Replace, ByteFallback, Fuse, Strip") {
    return ReadSentencePiece(members);
  }
  return Unsupported(fmt::format("decoder.type is \"Sequence\" of {} decoders ({})", members.size(),
                                 Quote(types)));
}

absl::StatusOr<PieceDecoder> PieceDecoder::ReadSentencePiece(const simdjson::dom::array& members) {
  if (absl::Status status = CheckReplace(members.at(0).value()); !status.ok()) return status;
  PieceDecoder decoder(false);
  decoder.rules_.replacement = Utf8Replacement::kByte;
  if (members.size() == 4) {
    const absl::StatusOr<uint32_t> spaces = ReadStrip(members.at(3).value());
    if (!spaces.ok()) return spaces.status();
    decoder.rules_.stripped_spaces = *spaces;
  }
  return decoder;
}

std::string PieceDecoder::Bytes(std::string_view piece) const {
  if (is_byte_level_) return ByteLevelBytes(piece);
  if (const std::optional<char> byte = ByteOf(piece); byte.has_value()) return {*byte};
  std::string bytes;
  while (true) {
    const size_t mark = piece.find(kSpaceMark);
    bytes += piece.substr(0, mark);
    if (mark == std::string_view::npos) return bytes;
    bytes += ' ';
    piece.remove_prefix(mark + kSpaceMark.size());
  }
}

std::string PieceDecoder::AddedBytes(std::string_view content) const {
  return is_byte_level_ ? std::string(content) : Bytes(content);
}

}  // namespace specd
