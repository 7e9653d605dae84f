#include "detokenizer/sentence_piece_model.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "detokenizer/decoder_steps.h"
#include "detokenizer/json_words.h"
#include "detokenizer/protobuf_reader.h"

namespace specd {
namespace {

// The fields of sentencepiece_model.proto that decoding needs.
constexpr uint32_t kModelPieces = 1;
constexpr uint32_t kModelTrainer = 2;
constexpr uint32_t kModelNormalizer = 3;
constexpr uint32_t kModelDenormalizer = 5;
constexpr uint32_t kPieceText = 1;
constexpr uint32_t kPieceType = 3;
constexpr uint32_t kTrainerSuffix = 24;  // treat_whitespace_as_suffix
constexpr uint32_t kTrainerUnkSurface = 44;
constexpr uint32_t kNormalizerMap = 2;  // precompiled_charsmap
constexpr uint32_t kNormalizerPrefix = 3;
constexpr uint32_t kNormalizerExtraSpaces = 4;

class ModelReader {
 public:
  ModelReader(std::string_view bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  absl::StatusOr<Vocabulary> Read();

 private:
  // The fields that say how pieces are read may come after the pieces.
  absl::Status ReadSpecs();
  absl::Status ReadTrainer(std::string_view message);
  absl::Status ReadNormalizer(std::string_view message);
  absl::Status ReadDenormalizer(std::string_view message) const;
  absl::Status ReadPiece(std::string_view message, TokenId id);
  absl::Status AddPiece(TokenId id, std::string_view text, uint64_t type);

  absl::Status Invalid(std::string_view message) const {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}; download the file again", name_, message));
  }
  absl::Status Unsupported(std::string_view message) const {
    return absl::UnimplementedError(fmt::format("{}: {}; {}", name_, message, kReadableTokenizers));
  }

  const std::string_view bytes_;
  const std::string_view name_;
  bool has_unknown_ = false;
  std::string_view unk_surface_ = " \xE2\x81\x87 ";
  FrontSpaces spaces_{.strips_first = true, .strips_all = true};
  Vocabulary::Builder builder_;
};

absl::StatusOr<Vocabulary> ModelReader::Read() {
  if (absl::Status status = ReadSpecs(); !status.ok()) return status;
  ProtobufReader reader(bytes_);
  TokenId id = 0;
  while (reader.Next()) {
    if (reader.field() != kModelPieces || !reader.is_bytes()) continue;
    if (id == kVocabSizeMax) {
      return Invalid(fmt::format("the model has more than {} pieces", kVocabSizeMax));
    }
    if (absl::Status status = ReadPiece(reader.bytes(), id++); !status.ok()) return status;
  }
  builder_.SetTextRules(SentencePieceRules(spaces_));
  return std::move(builder_).Build();
}

absl::Status ModelReader::ReadSpecs() {
  ProtobufReader reader(bytes_);
  while (reader.Next()) {
    absl::Status status;
    if (!reader.is_bytes()) continue;
    if (reader.field() == kModelTrainer) status = ReadTrainer(reader.bytes());
    if (reader.field() == kModelNormalizer) status = ReadNormalizer(reader.bytes());
    if (reader.field() == kModelDenormalizer) status = ReadDenormalizer(reader.bytes());
    if (!status.ok()) return status;
  }
  return reader.ok() ? absl::OkStatus()
                     : Invalid("the model is cut short, or no SentencePiece model");
}

absl::Status ModelReader::ReadTrainer(std::string_view message) {
  ProtobufReader reader(message);
  while (reader.Next()) {
    if (reader.field() == kTrainerUnkSurface && reader.is_bytes()) unk_surface_ = reader.bytes();
    if (reader.field() == kTrainerSuffix && reader.is_number() && reader.number() != 0) {
      return Unsupported("trainer_spec.treat_whitespace_as_suffix is true, allowed is false");
    }
  }
  if (!reader.ok()) return Invalid("trainer_spec is malformed");
  if (unk_surface_.size() <= Vocabulary::kTokenSizeBytesMax &&
      simdjson::validate_utf8(unk_surface_.data(), unk_surface_.size())) {
    return absl::OkStatus();
  }
  return Invalid(fmt::format("trainer_spec.unk_surface has {} bytes, expected UTF-8 of 0..{} bytes",
                             unk_surface_.size(), Vocabulary::kTokenSizeBytesMax));
}

absl::Status ModelReader::ReadNormalizer(std::string_view message) {
  ProtobufReader reader(message);
  while (reader.Next()) {
    if (!reader.is_number()) continue;
    if (reader.field() == kNormalizerPrefix) spaces_.strips_first = reader.number() != 0;
    if (reader.field() == kNormalizerExtraSpaces) spaces_.strips_all = reader.number() != 0;
  }
  return reader.ok() ? absl::OkStatus() : Invalid("normalizer_spec is malformed");
}

absl::Status ModelReader::ReadDenormalizer(std::string_view message) const {
  ProtobufReader reader(message);
  while (reader.Next()) {
    if (reader.field() != kNormalizerMap || !reader.is_bytes() || reader.bytes().empty()) continue;
    return Unsupported(fmt::format(
        "denormalizer_spec.precompiled_charsmap has {} bytes, expected none: it changes a text as "
        "a whole",
        reader.bytes().size()));
  }
  return reader.ok() ? absl::OkStatus() : Invalid("denormalizer_spec is malformed");
}

absl::Status ModelReader::ReadPiece(std::string_view message, TokenId id) {
  std::string_view text;
  auto type = static_cast<uint64_t>(PieceType::kNormal);
  ProtobufReader reader(message);
  while (reader.Next()) {
    if (reader.field() == kPieceText && reader.is_bytes()) text = reader.bytes();
    if (reader.field() == kPieceType && reader.is_number()) type = reader.number();
  }
  if (!reader.ok()) return Invalid(fmt::format("pieces[{}] is malformed", id));
  if (text.empty() || text.size() > Vocabulary::kTokenSizeBytesMax ||
      !simdjson::validate_utf8(text.data(), text.size())) {
    return Invalid(fmt::format("pieces[{}].piece has {} bytes, expected UTF-8 of 1..{} bytes", id,
                               text.size(), Vocabulary::kTokenSizeBytesMax));
  }
  return AddPiece(id, text, type);
}

absl::Status ModelReader::AddPiece(TokenId id, std::string_view text, uint64_t type) {
  const std::optional<char> byte = ByteOfPiece(text);
  switch (static_cast<PieceType>(type <= UINT8_MAX ? type : 0)) {
    case PieceType::kNormal:
    case PieceType::kUnused:
      AddSentencePiece(id, text, {}, spaces_, &builder_);
      return absl::OkStatus();
    case PieceType::kUserDefined:
      AddSentencePiece(id, text, {.added = true}, spaces_, &builder_);
      return absl::OkStatus();
    case PieceType::kUnknown:
      // The surface is of any length: many of them would make a large table of a small file.
      if (has_unknown_) return Invalid(fmt::format("pieces[{}] is a second unknown piece", id));
      has_unknown_ = true;
      builder_.Set(id, unk_surface_, {});
      return absl::OkStatus();
    case PieceType::kControl:
      builder_.Set(id, text, {.added = true, .special = true});
      return absl::OkStatus();
    case PieceType::kByte:
      if (!byte.has_value()) break;
      builder_.Set(id, {&*byte, 1}, {});
      return absl::OkStatus();
  }
  return Invalid(
      fmt::format("pieces[{}] is {} of type {}, known are 1..6, and 6 is a byte such as "
                  "\"<0x0A>\"",
                  id, Quote(text), type));
}

}  // namespace

void AddSentencePiece(TokenId id, std::string_view text, TokenFlags flags,
                      const FrontSpaces& spaces, Vocabulary::Builder* builder) {
  builder->Set(id, ReplaceAll(text, kSpaceMark, " "), flags);
  if (!spaces.strips_first && !spaces.strips_all) return;
  if (text.substr(0, kSpaceMark.size()) == kSpaceMark) text.remove_prefix(kSpaceMark.size());
  builder->SetFront(id, ReplaceAll(text, kSpaceMark, " "));
}

TextRules SentencePieceRules(const FrontSpaces& spaces) {
  return {.replacement = Utf8Replacement::kByte,
          .front_end = spaces.strips_all ? FrontEnd::kText : FrontEnd::kToken};
}

// The first piece is a message of a text (0A) and then a score (15). No text file has the two in
// these places.
bool IsSentencePieceModel(std::string_view bytes) {
  ProtobufReader model(bytes.substr(0, Vocabulary::kTokenSizeBytesMax));
  if (!model.Next() || model.field() != kModelPieces || !model.is_bytes()) return false;
  ProtobufReader piece(model.bytes());
  if (!piece.Next() || piece.field() != kPieceText || !piece.is_bytes()) return false;
  return piece.Next() && piece.field() == 2 && !piece.is_bytes() && !piece.is_number();
}

absl::StatusOr<Vocabulary> ParseSentencePieceModel(std::string_view bytes, std::string_view name) {
  return ModelReader(bytes, name).Read();
}

}  // namespace specd
