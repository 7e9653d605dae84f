// Fnv1a is the checksum that ends of streams carry: FNV-1a with 64 bits, of ids as little-endian
// 32-bit numbers or of the bytes of a text.
//
// A value; safe from any thread. docs/PROTOCOL.md, "Token batch".
#pragma once

#include <cstdint>
#include <string_view>

namespace specd {

class Fnv1a {
 public:
  void Add(std::string_view bytes) {
    for (const char byte : bytes) AddByte(static_cast<uint8_t>(byte));
  }
  void Add(int32_t id) {
    for (int shift = 0; shift < 32; shift += 8) {
      AddByte(static_cast<uint8_t>(static_cast<uint32_t>(id) >> shift));
    }
  }
  uint64_t value() const { return value_; }

 private:
  void AddByte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }

  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace specd
