#include "detokenizer/protobuf_reader.h"

#include <cstddef>

namespace specd {

bool ProtobufReader::ReadVarint(uint64_t* value) {
  *value = 0;
  for (uint32_t shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const uint8_t byte = rest_.front();
    rest_.remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool ProtobufReader::ReadBytes(uint64_t size_bytes) {
  if (size_bytes > rest_.size()) return false;
  bytes_ = rest_.substr(0, size_bytes);
  rest_.remove_prefix(bytes_.size());
  return true;
}

bool ProtobufReader::Next() {
  if (rest_.empty() || !ok_) return false;
  uint64_t tag = 0;
  uint64_t size_bytes = 0;
  ok_ = ReadVarint(&tag) && tag <= UINT32_MAX && (tag >> 3) != 0;
  if (!ok_) return false;
  field_ = static_cast<uint32_t>(tag >> 3);
  wire_type_ = static_cast<WireType>(tag & 7);
  switch (wire_type_) {
    case WireType::kVarint:
      ok_ = ReadVarint(&number_);
      break;
    case WireType::kEightBytes:
      ok_ = ReadBytes(8);
      break;
    case WireType::kBytes:
      ok_ = ReadVarint(&size_bytes) && ReadBytes(size_bytes);
      break;
    case WireType::kFourBytes:
      ok_ = ReadBytes(4);
      break;
    default:
      ok_ = false;
  }
  return ok_;
}

}  // namespace specd
