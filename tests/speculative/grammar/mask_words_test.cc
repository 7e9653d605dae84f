#include "speculative/grammar/masks/mask_words.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

struct Row {
  char* bytes = nullptr;
  size_t size_bytes = 0;
  char value = 0;
};

void Take(size_t size_bytes, char value, std::vector<Row>* rows) {
  rows->push_back({static_cast<char*>(MaskMemory::Take(size_bytes)), size_bytes, value});
  std::memset(rows->back().bytes, value, size_bytes);
}

void Give(size_t at, std::vector<Row>* rows) {
  const Row row = (*rows)[at];
  CHECK(std::all_of(row.bytes, row.bytes + row.size_bytes,
                    [&](char byte) { return byte == row.value; }));
  MaskMemory::Give(row.bytes, row.size_bytes);
  rows->erase(rows->begin() + static_cast<int64_t>(at));
}

TEST_SUITE("unit") {
  // A row that shared bytes with another would not have its value when it is given back.
  TEST_CASE("rows of many sizes come and go, and each has its bytes alone") {
    std::mt19937 random(11);
    constexpr size_t kSizes[] = {4, 4092, 4096, 4097, 16032, 40000, 262144, 262145, 1 << 20};
    std::vector<Row> rows;
    for (int step = 0; step < GridSize({.full = 4000, .sanitized = 400}); ++step) {
      if (rows.size() < 60 || (rows.size() < 400 && random() % 2 == 0)) {
        Take(kSizes[random() % std::size(kSizes)], static_cast<char>(random()), &rows);
      } else {
        Give(random() % rows.size(), &rows);
      }
    }
    while (!rows.empty()) Give(rows.size() - 1, &rows);
  }

  TEST_CASE("a block without rows goes back, except the last one of its size") {
    if (kIsSanitized) return;
    constexpr size_t kRowBytes = 50'000;  // 41 to a block of 2 MiB
    constexpr size_t kBlockBytes = size_t{2} << 20;
    std::vector<Row> rows;
    const size_t before = MaskMemory::block_bytes();
    for (int i = 0; i < 41; ++i) Take(kRowBytes, 1, &rows);
    CHECK(MaskMemory::block_bytes() == before + kBlockBytes);
    for (int i = 0; i < 42; ++i) Take(kRowBytes, 2, &rows);
    CHECK(MaskMemory::block_bytes() == before + 3 * kBlockBytes);
    // A row that was given back is taken before a new block is.
    Give(50, &rows);
    Take(kRowBytes, 3, &rows);
    CHECK(MaskMemory::block_bytes() == before + 3 * kBlockBytes);
    while (!rows.empty()) Give(0, &rows);
    CHECK(MaskMemory::block_bytes() == before + kBlockBytes);
    Take(kRowBytes, 4, &rows);
    CHECK(MaskMemory::block_bytes() == before + kBlockBytes);
    Give(0, &rows);
  }

  TEST_CASE("threads take and give rows of one size") {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([i] {
        std::vector<MaskWords> rows;
        for (uint32_t step = 0; step < 500; ++step) {
          rows.emplace_back(4008, step * 4 + static_cast<uint32_t>(i));
          if (step % 3 == 2) rows.erase(rows.begin() + step % 2);
        }
        for (const MaskWords& row : rows) {
          if (std::count(row.begin(), row.end(), row[0]) != 4008) std::abort();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  TEST_CASE("words begin at a line of the cache, and are 0") {
    for (int i = 0; i < 3; ++i) {
      MaskWords words(4008);
      if (!kIsSanitized) CHECK(reinterpret_cast<uintptr_t>(words.data()) % 64 == 0);
      CHECK(std::count(words.begin(), words.end(), 0u) == 4008);
      std::fill(words.begin(), words.end(), ~0u);
    }
  }
}

}  // namespace
}  // namespace specd::grammar
