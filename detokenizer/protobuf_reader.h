// ProtobufReader walks the fields of one protobuf message for a loader.
//
// It reads the wire format of "Encoding" in the documentation of Protocol Buffers, and checks every
// length. The bytes must outlive the reader and what it returns. Not safe for use by two threads at
// once.
//
//   ProtobufReader reader(bytes);
//   while (reader.Next()) {
//     if (reader.field() == 1 && reader.is_bytes()) Use(reader.bytes());
//   }
//   if (!reader.ok()) ...   // the message is cut short or malformed
#pragma once

#include <cstdint>
#include <string_view>

namespace specd {

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view message) : rest_(message) {}

  // Reads the next field. False at the end of the message, or if it is malformed.
  bool Next();
  bool ok() const { return ok_; }

  uint32_t field() const { return field_; }
  bool is_bytes() const { return wire_type_ == WireType::kBytes; }
  bool is_number() const { return wire_type_ == WireType::kVarint; }
  // The value of a field of bytes, and that of a number.
  std::string_view bytes() const { return bytes_; }
  uint64_t number() const { return number_; }

 private:
  enum class WireType : uint8_t { kVarint = 0, kEightBytes = 1, kBytes = 2, kFourBytes = 5 };

  bool ReadVarint(uint64_t* value);
  bool ReadBytes(uint64_t size_bytes);

  std::string_view rest_;
  bool ok_ = true;
  uint32_t field_ = 0;
  WireType wire_type_ = WireType::kVarint;
  std::string_view bytes_;
  uint64_t number_ = 0;
};

}  // namespace specd
