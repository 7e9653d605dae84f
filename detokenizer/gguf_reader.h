// GgufReader walks the metadata of a GGUF file for the loader of its tokenizer.
//
// It reads versions 2 and 3 of the format as ggml's <docs/gguf.md> describes it, little endian. The
// tensors after the metadata, many GB, are never touched. Every length is checked against the bytes
// that may still be read, so a file cannot take more memory or time than its metadata may have. Not
// safe for use by two threads at once.
//
//   GgufReader reader(file, path);
//   if (absl::Status status = reader.ReadHeader(); !status.ok()) return status;
//   while (reader.Next()) {
//     if (reader.key() == "general.name") reader.ReadString(&name);
//   }
//   return reader.status();
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace specd {

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

class GgufReader {
 public:
  // `file` stands at its first byte. At most `size_bytes_max` bytes are read. Errors begin with
  // `name`, the path of the file.
  GgufReader(std::FILE* file, std::string_view name, size_t size_bytes_max)
      : file_(file), name_(name), num_left_(size_bytes_max) {}

  absl::Status ReadHeader();

  // Goes to the next key and skips what was not read of the value before. False after the last one,
  // or if the file is malformed.
  bool Next();
  const absl::Status& status() const { return status_; }

  const std::string& key() const { return key_; }

  // Each reads the value of the key. If it has another type, or is malformed, status() says so.
  bool ReadString(std::string* value);
  bool ReadBool(bool* value);
  bool ReadInteger(int64_t* value);  // of any width
  // Calls `use` for each element, until it returns an error.
  bool ReadStrings(size_t count_max, const std::function<absl::Status(std::string_view)>& use);
  bool ReadIntegers(size_t count_max, const std::function<absl::Status(int64_t)>& use);

 private:
  bool Fail(absl::Status status);
  bool Invalid(std::string_view message);
  bool HasRoomFor(uint64_t size_bytes);
  bool ReadBytes(void* to, size_t size_bytes);
  template <typename Number>
  bool ReadNumber(Number* number) {
    return ReadBytes(number, sizeof *number);
  }
  bool ReadText(size_t size_bytes_max, std::string* text);
  bool ReadElement(GgufType type, int64_t* value);
  bool ReadArray(GgufType* type, uint64_t* count);
  bool ExpectType(bool matches, std::string_view expected);
  bool Skip(uint64_t size_bytes);
  bool SkipValue();
  bool SkipElements(GgufType type, uint64_t count);

  std::FILE* const file_;
  const std::string name_;
  size_t num_left_;  // bytes that may still be read
  uint64_t num_keys_left_ = 0;
  absl::Status status_;
  std::string key_;
  GgufType type_ = GgufType::kUint8;
  bool is_value_unread_ = false;
};

}  // namespace specd
