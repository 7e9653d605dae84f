#include "detokenizer/gguf_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "detokenizer/text_lines.h"
#include "detokenizer/vocabulary.h"

namespace specd {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are read as they lie in the file");

constexpr size_t kKeySizeBytesMax = 65535;  // of the format

// The bytes of a number of this type, 0 for other types.
size_t SizeBytesOf(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

bool IsInteger(GgufType type) {
  return SizeBytesOf(type) > 0 && type != GgufType::kFloat32 && type != GgufType::kFloat64 &&
         type != GgufType::kBool;
}

}  // namespace

bool GgufReader::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return false;
}

bool GgufReader::Invalid(std::string_view message) {
  const std::string where = key_.empty() ? "" : fmt::format(" at the key {}", QuoteBytes(key_));
  return Fail(absl::InvalidArgumentError(
      fmt::format("{}: {}{}; download the file again", name_, message, where)));
}

bool GgufReader::HasRoomFor(uint64_t size_bytes) {
  return size_bytes <= num_left_ || Invalid("the metadata is longer than any tokenizer needs");
}

bool GgufReader::ReadBytes(void* to, size_t size_bytes) {
  if (!status_.ok()) return false;
  if (!HasRoomFor(size_bytes)) return false;
  num_left_ -= size_bytes;
  if (std::fread(to, 1, size_bytes, file_) == size_bytes) return true;
  return Invalid("the metadata of this GGUF file is cut short");
}

bool GgufReader::ReadText(size_t size_bytes_max, std::string* text) {
  uint64_t size_bytes = 0;
  if (!ReadNumber(&size_bytes)) return false;
  if (size_bytes > size_bytes_max) {
    return Invalid(
        fmt::format("a string has {} bytes, allowed are 0..{}", size_bytes, size_bytes_max));
  }
  text->resize(static_cast<size_t>(size_bytes));
  return ReadBytes(text->data(), text->size());
}

absl::Status GgufReader::ReadHeader() {
  char magic[4] = {};
  uint32_t version = 0;
  uint64_t num_tensors = 0;
  if (!ReadBytes(magic, sizeof magic) || !ReadNumber(&version)) return status_;
  if (version != 2 && version != 3) {
    Fail(absl::UnimplementedError(
        fmt::format("{}: this is a GGUF file of version {}, or a big-endian one; specd reads "
                    "versions 2 and 3, little endian; convert the model again",
                    name_, version)));
    return status_;
  }
  if (ReadNumber(&num_tensors)) ReadNumber(&num_keys_left_);
  return status_;
}

bool GgufReader::Next() {
  if (is_value_unread_ && !SkipValue()) return false;
  is_value_unread_ = false;
  if (num_keys_left_ == 0 || !status_.ok()) return false;
  --num_keys_left_;
  key_.clear();
  uint32_t type = 0;
  if (!ReadText(kKeySizeBytesMax, &key_) || !ReadNumber(&type)) return false;
  if (type > static_cast<uint32_t>(GgufType::kFloat64)) {
    return Invalid(fmt::format("a value has the type {}, known are 0..12", type));
  }
  type_ = static_cast<GgufType>(type);
  is_value_unread_ = true;
  return true;
}

bool GgufReader::ExpectType(bool matches, std::string_view expected) {
  is_value_unread_ = false;
  if (matches) return true;
  return Invalid(
      fmt::format("a value has the type {}, expected {}", static_cast<uint32_t>(type_), expected));
}

bool GgufReader::ReadString(std::string* value) {
  return ExpectType(type_ == GgufType::kString, "a string") &&
         ReadText(Vocabulary::kTokenSizeBytesMax, value);
}

bool GgufReader::ReadBool(bool* value) {
  uint8_t byte = 0;
  if (!ExpectType(type_ == GgufType::kBool, "a bool") || !ReadNumber(&byte)) return false;
  *value = byte != 0;
  return true;
}

bool GgufReader::ReadInteger(int64_t* value) {
  return ExpectType(IsInteger(type_), "an integer") && ReadElement(type_, value);
}

// A number above the largest int64_t becomes negative, which no id is.
bool GgufReader::ReadElement(GgufType type, int64_t* value) {
  const size_t size_bytes = SizeBytesOf(type);
  uint64_t bits = 0;
  if (!ReadBytes(&bits, size_bytes)) return false;
  const bool is_signed = type == GgufType::kInt8 || type == GgufType::kInt16 ||
                         type == GgufType::kInt32 || type == GgufType::kInt64;
  const int shift = static_cast<int>(64 - 8 * size_bytes);
  *value = is_signed ? static_cast<int64_t>(bits << shift) >> shift : static_cast<int64_t>(bits);
  return true;
}

bool GgufReader::ReadArray(GgufType* type, uint64_t* count) {
  uint32_t number = 0;
  if (!ExpectType(type_ == GgufType::kArray, "an array") || !ReadNumber(&number) ||
      !ReadNumber(count)) {
    return false;
  }
  *type = static_cast<GgufType>(number);
  if (*type == GgufType::kString || SizeBytesOf(*type) > 0) return true;
  return Invalid(
      fmt::format("an array has elements of the type {}, expected strings or numbers", number));
}

bool GgufReader::ReadStrings(size_t count_max,
                             const std::function<absl::Status(std::string_view)>& use) {
  GgufType type = GgufType::kString;
  uint64_t count = 0;
  if (!ReadArray(&type, &count)) return false;
  if (type != GgufType::kString || count > count_max) {
    return Invalid(fmt::format("an array has {} elements of the type {}, expected 0..{} strings",
                               count, static_cast<uint32_t>(type), count_max));
  }
  std::string text;
  for (uint64_t i = 0; i < count; ++i) {
    if (!ReadText(Vocabulary::kTokenSizeBytesMax, &text)) return false;
    if (absl::Status status = use(text); !status.ok()) return Fail(std::move(status));
  }
  return true;
}

bool GgufReader::ReadIntegers(size_t count_max, const std::function<absl::Status(int64_t)>& use) {
  GgufType type = GgufType::kInt32;
  uint64_t count = 0;
  if (!ReadArray(&type, &count)) return false;
  if (!IsInteger(type) || count > count_max) {
    return Invalid(fmt::format("an array has {} elements of the type {}, expected 0..{} integers",
                               count, static_cast<uint32_t>(type), count_max));
  }
  for (uint64_t i = 0; i < count; ++i) {
    int64_t value = 0;
    if (!ReadElement(type, &value)) return false;
    if (absl::Status status = use(value); !status.ok()) return Fail(std::move(status));
  }
  return true;
}

// Reads and drops: a seek would be slower for the many short strings of an array.
bool GgufReader::Skip(uint64_t size_bytes) {
  char dropped[4096];
  if (!HasRoomFor(size_bytes)) return false;
  while (size_bytes > 0) {
    const size_t part_size_bytes =
        static_cast<size_t>(std::min<uint64_t>(size_bytes, sizeof dropped));
    if (!ReadBytes(dropped, part_size_bytes)) return false;
    size_bytes -= part_size_bytes;
  }
  return true;
}

bool GgufReader::SkipValue() {
  if (type_ != GgufType::kArray) return SkipElements(type_, 1);
  GgufType type = GgufType::kString;
  uint64_t count = 0;
  return ReadArray(&type, &count) && SkipElements(type, count);
}

bool GgufReader::SkipElements(GgufType type, uint64_t count) {
  const size_t size_bytes = SizeBytesOf(type);
  if (size_bytes > 0) {
    return HasRoomFor(std::min<uint64_t>(count, num_left_ + 1) * size_bytes) &&
           Skip(count * size_bytes);
  }
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t text_size_bytes = 0;
    if (!ReadNumber(&text_size_bytes) || !Skip(text_size_bytes)) return false;
  }
  return true;
}

}  // namespace specd
