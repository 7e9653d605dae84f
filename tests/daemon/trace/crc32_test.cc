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

  TEST_CASE("sizes of more than 32 bits join too") {
    // The polynomial is primitive, so x to the power 2^32 - 1 is 1. That many bytes after the first
    // part change nothing in its remainder, and one byte more is like one byte.
    const uint32_t first = BitwiseCrc("first");
    const uint32_t second = BitwiseCrc("second");
    const uint64_t period = (uint64_t{1} << 32) - 1;
    CHECK(JoinCrc32(first, second, period) == (first ^ second));
    CHECK(JoinCrc32(first, second, period + 1) == JoinCrc32(first, second, 1));
    CHECK(JoinCrc32(first, second, 5 * period + 6) == BitwiseCrc("firstsecond"));
  }

}  // TEST_SUITE

}  // namespace
}  // namespace specd
