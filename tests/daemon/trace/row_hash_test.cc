#include "daemon/trace/row_hash.h"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <span>
#include <vector>

namespace specd {
namespace {

std::vector<std::byte> RandomBytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_SUITE("unit") {
  TEST_CASE("row hash: every single bit of a row counts") {
    for (const size_t size : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{3000}}) {
      std::vector<std::byte> row = RandomBytes(size, size);
      const uint64_t hash = RowHash(row);
      std::set<uint64_t> hashes = {hash};
      CHECK(PlainRowHash(row) == hash);
      for (size_t bit = 0; bit < 8 * size; ++bit) {
        row[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        hashes.insert(RowHash(row));
        row[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      }
      CHECK(hashes.size() == 8 * size + 1);
      CHECK(RowHash(row) == hash);
    }
  }

  TEST_CASE("row hash: the same bytes in another place or number are another row") {
    // Rows of logits often hold the same stripe many times, such as -inf.
    std::set<uint64_t> hashes;
    for (size_t size = 0; size <= 4096; ++size) {
      hashes.insert(RowHash(std::vector<std::byte>(size)));
    }
    CHECK(hashes.size() == 4097);
    std::vector<std::byte> row(8192);
    for (size_t at = 0; at < row.size(); ++at) {
      row[at] = std::byte{1};
      hashes.insert(RowHash(row));
      row[at] = std::byte{0};
    }
    CHECK(hashes.size() == 4097 + 8192);
  }

  TEST_CASE("row hash: swapped stripes and swapped blocks are another row") {
    std::vector<std::byte> row = RandomBytes(8192, 3);
    std::set<uint64_t> hashes = {RowHash(row)};
    for (size_t a = 0; a < row.size() / 64; ++a) {
      for (size_t b = a + 1; b < row.size() / 64; ++b) {
        std::swap_ranges(row.begin() + 64 * a, row.begin() + 64 * a + 64, row.begin() + 64 * b);
        hashes.insert(RowHash(row));
        std::swap_ranges(row.begin() + 64 * a, row.begin() + 64 * a + 64, row.begin() + 64 * b);
      }
    }
    CHECK(hashes.size() == 1 + 128 * 127 / 2);
  }

  TEST_CASE("row hash: half of the bits move") {
    std::vector<std::byte> row = RandomBytes(1000, 4);
    const uint64_t hash = RowHash(row);
    double moved = 0;
    for (size_t bit = 0; bit < 8000; ++bit) {
      row[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      moved += __builtin_popcountll(RowHash(row) ^ hash);
      row[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
    // Binomial with 64 coins, 8,000 times: the mean's deviation is 0.045.
    CHECK(moved / 8000 == doctest::Approx(32).epsilon(0.01));
  }

  // The value is part of the format: traces of one release are compared with those of another.
  TEST_CASE("row hash: its values stay") {
    std::vector<std::byte> row(1500);
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::byte>(i * 7);
    // Computed in Python from the header's words.
    CHECK(RowHash(row) == 0x5644a74b847e3db1);
    CHECK(RowHash({}) == 0xd1d1da11a29cc954);
  }
}

}  // namespace
}  // namespace specd
