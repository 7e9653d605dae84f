#include "detokenizer/piece_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "detokenizer/json_words.h"

namespace specd {
namespace {

using simdjson::dom::element;
using Kind = DecoderStep::Kind;

constexpr size_t kStepsMax = 16;

}  // namespace

absl::StatusOr<PieceDecoder> PieceDecoder::Read(const element& root) {
  PieceDecoder read;
  element decoder;
  if (root["decoder"].get(decoder) || decoder.is_null()) {
    read.steps_.push_back({.kind = Kind::kJoinBySpace});
    return read;
  }
  std::string_view type;
  if (decoder["type"].get(type) || type != "Sequence") {
    if (absl::Status status = read.Add(decoder, "decoder"); !status.ok()) return status;
    return read;
  }
  simdjson::dom::array members;
  if (decoder["decoders"].get(members)) {
    return absl::InvalidArgumentError(
        "decoder.decoders is missing or not an array, but decoder.type is \"Sequence\"; "
        "download the file again");
  }
  if (members.size() > kStepsMax) {
    return UnsupportedDecoder(fmt::format("decoder.decoders has {} members, allowed are 0..{}",
                                          members.size(), kStepsMax));
  }
  size_t index = 0;
  for (const element member : members) {
    const std::string field = fmt::format("decoder.decoders[{}]", index++);
    if (absl::Status status = read.Add(member, field); !status.ok()) return status;
  }
  return read;
}

absl::Status PieceDecoder::Add(const element& step, std::string_view field) {
  const absl::StatusOr<DecoderStep> read = ReadDecoderStep(step, field);
  if (!read.ok()) return read.status();
  if (absl::Status status = CheckOrder(*read, field); !status.ok()) return status;
  if (is_joined_) return AddToText(*read, field);
  steps_.push_back(*read);
  is_joined_ = read->kind == Kind::kFuse || read->kind == Kind::kByteLevel;
  if (read->kind == Kind::kByteFallback) rules_.replacement = Utf8Replacement::kByte;
  if (read->kind == Kind::kSuffix) rules_.holds_last_space = true;
  return absl::OkStatus();
}

// A step that finds a single character in the joined text finds it in the pieces. If byte pieces
// spell the character, their bytes stay, as in SentencePiece.
absl::Status PieceDecoder::AddToText(const DecoderStep& step, std::string_view field) {
  if (step.kind == Kind::kFuse) return absl::OkStatus();
  if (step.kind == Kind::kReplace && step.from == kSpaceMark && rules_.stripped_spaces == 0) {
    steps_.push_back(step);
    return absl::OkStatus();
  }
  if (step.kind != Kind::kStrip) {
    return UnsupportedDecoder(
        fmt::format("{} comes after the pieces are joined, where only Fuse, Strip, and before it a "
                    "Replace of \"{}\" can be followed",
                    field, kSpaceMark));
  }
  if (step.from != " " || step.stop != 0 || rules_.stripped_spaces != 0) {
    return UnsupportedDecoder(
        fmt::format("{} is a Strip with content {}, start {} and stop {} of the whole text; once, "
                    "and with a space and stop 0 it can be followed, because a text that is given "
                    "out as it grows cannot lose its end",
                    field, Quote(step.from), step.start, step.stop));
  }
  rules_.stripped_spaces = step.start;
  return absl::OkStatus();
}

// Byte pieces that stand side by side are one piece for the steps after ByteFallback. To a step
// that changes both ends of a piece, or adds to it, they are therefore unknown.
absl::Status PieceDecoder::CheckOrder(const DecoderStep& step, std::string_view field) const {
  const Kind kind = step.kind;
  if (Has(Kind::kByteFallback) && !is_joined_ && kind != Kind::kFuse && kind != Kind::kMetaspace &&
      !(kind == Kind::kReplace && step.from == kSpaceMark)) {
    return UnsupportedDecoder(
        fmt::format("{} comes after ByteFallback, where only Fuse, Strip after Fuse, Metaspace and "
                    "a Replace of \"{}\" can be followed",
                    field, kSpaceMark));
  }
  const bool is_suffix = kind == Kind::kSuffix;
  if ((Has(Kind::kSuffix) && kind != Kind::kFuse) ||
      (is_suffix && std::any_of(steps_.begin(), steps_.end(), [](const DecoderStep& earlier) {
         return earlier.kind != Kind::kReplace;
       }))) {
    return UnsupportedDecoder(fmt::format(
        "{} stands beside a BPEDecoder, beside which only Replace before and Fuse after can be "
        "followed",
        field));
  }
  return absl::OkStatus();
}

bool PieceDecoder::Has(Kind kind) const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [kind](const DecoderStep& step) { return step.kind == kind; });
}

absl::StatusOr<PieceText> PieceDecoder::Decode(std::string_view piece, bool is_added) const {
  PieceText text{.bytes = std::string(piece), .front = std::string(piece)};
  for (const DecoderStep& step : steps_) {
    if (text.is_byte) break;
    if (is_added && step.kind == Kind::kByteLevel) continue;
    if (step.kind == Kind::kSuffix) {
      const size_t begin = text.bytes.find(step.from);
      const bool is_last =
          begin == std::string::npos || begin + step.from.size() == text.bytes.size();
      const std::string_view stem = std::string_view(text.bytes).substr(0, begin);
      if (!is_last || (!stem.empty() && stem.back() == ' ')) {
        return UnsupportedDecoder(
            fmt::format("the token {} has the suffix {} inside, or a space of its own at the end",
                        Quote(piece), Quote(step.from)));
      }
    }
    ApplyStep(step, &text);
  }
  return text;
}

}  // namespace specd
