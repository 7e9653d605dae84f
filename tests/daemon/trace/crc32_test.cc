// Checksums of MCAP files.
#include "daemon/trace/crc32.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/daemon/trace/mcap_bytes.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("the checksum is the CRC-32 of zip") {
    // The check value of CRC-32/ISO-HDLC in the catalogues of CRCs.
    CHECK(Crc32("123456789") == 0xcbf43926);
    CHECK(Crc32("") == 0);
    std::string bytes;
    for (int i = 0; i < 1000; ++i) bytes.push_back(static_cast<char>(i * 7 + i / 256));
    CHECK(Crc32(bytes) == BitwiseCrc(bytes));
  }

  TEST_CASE("checksums of two parts join to that of the whole") {
    std::string bytes;
    for (int i = 0; i < 600; ++i) bytes.push_back(static_cast<char>(i * 31 + i / 5));
    const uint32_t whole = BitwiseCrc(bytes);
    for (size_t i = 0; i <= bytes.size(); ++i) {
      CAPTURE(i);
      const std::string second = bytes.substr(i);
      CHECK(JoinCrc32(BitwiseCrc(bytes.substr(0, i)), BitwiseCrc(second), second.size()) == whole);
    }
  }

  TEST_CASE("a long second part of a checksum has a size of more than 32 bits") {
    // Joined with itself again and again: 2^30 copies of 8 bytes, then 2^33 bytes more, in two
    // orders.
    uint32_t crc = BitwiseCrc("8 bytes.");
    uint64_t size_bytes = 8;
    uint32_t halves[2] = {};
    for (int i = 0; i < 31; ++i) {
      if (i == 30) halves[0] = crc;
      crc = JoinCrc32(crc, crc, size_bytes);
      size_bytes *= 2;
    }
    CHECK(size_bytes == uint64_t{1} << 34);
    halves[1] = halves[0];
    // (a + b) + c == a + (b + c) with sizes on both sides of 2^32.
    const uint32_t left =
        JoinCrc32(JoinCrc32(halves[0], halves[1], size_bytes / 2), crc, size_bytes);
    const uint32_t right =
        JoinCrc32(halves[0], JoinCrc32(halves[1], crc, size_bytes), size_bytes / 2 + size_bytes);
    CHECK(left == right);
  }
}  // TEST_SUITE

}  // namespace
}  // namespace specd
