#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "kernels/core/elements.h"
#include "tools/bench/rows.h"

namespace specd::bench {
namespace {

constexpr int32_t kVocabSize = 32000;

std::vector<float> Elements(const RowPool& pool, int64_t row) {
  std::vector<float> elements;
  for (int32_t i = 0; i < kVocabSize; ++i) {
    elements.push_back(LoadElement(RowAt(pool.view(), row), i));
  }
  return elements;
}

RowPool MakePool(RowShape shape, DType dtype, bool drafter = false) {
  absl::StatusOr<RowPool> pool = RowPool::Make({.shape = shape,
                                                .dtype = dtype,
                                                .vocab_size = kVocabSize,
                                                .num_rows = 12,
                                                .drafter = drafter});
  REQUIRE(pool.ok());
  return *std::move(pool);
}

// Ids that hold `share` of the mass at temperature 1.
int64_t NucleusSize(std::vector<float> row, double share) {
  std::sort(row.begin(), row.end(), std::greater<>());
  double total = 0;
  for (const float logit : row) total += std::exp(static_cast<double>(logit) - row[0]);
  double prefix = 0;
  int64_t size = 0;
  while (prefix < share * total) {
    prefix += std::exp(static_cast<double>(row[static_cast<size_t>(size++)]) - row[0]);
  }
  return size;
}

double Probability(const std::vector<float>& row, TokenId id) {
  double total = 0;
  for (const float logit : row) total += std::exp(static_cast<double>(logit));
  return std::exp(static_cast<double>(row[static_cast<size_t>(id)])) / total;
}

TEST_SUITE("unit") {
  TEST_CASE("llm rows: the best at 16 to 22, a nucleus of 10 to 23 ids") {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const RowPool pool = MakePool(RowShape::kLlm, dtype);
      for (int64_t row = 0; row < 12; ++row) {
        const std::vector<float> elements = Elements(pool, row);
        const float best = *std::max_element(elements.begin(), elements.end());
        CHECK(best >= 15.9f);
        CHECK(best <= 22.1f);
        CHECK(elements[static_cast<size_t>(pool.best_id(row))] == best);
        const int64_t nucleus = NucleusSize(elements, 0.95);
        CHECK(nucleus >= 9);
        CHECK(nucleus <= 25);
      }
    }
  }

  TEST_CASE("rows of one template are rotations of each other, at different places") {
    const RowPool pool = MakePool(RowShape::kLlm, DType::kFloat32);
    std::vector<float> first = Elements(pool, 0);
    const std::vector<float> second = Elements(pool, 8);
    CHECK(pool.best_id(0) != pool.best_id(8));
    const int32_t shift = (pool.best_id(8) - pool.best_id(0) + kVocabSize) % kVocabSize;
    std::rotate(first.begin(), first.end() - shift, first.end());
    CHECK(first == second);
  }

  TEST_CASE("flat rows have most ids in their nucleus, spikes five") {
    CHECK(NucleusSize(Elements(MakePool(RowShape::kFlat, DType::kFloat32), 3), 0.95) >
          0.7 * kVocabSize);
    CHECK(NucleusSize(Elements(MakePool(RowShape::kSpikes, DType::kFloat32), 3), 0.95) <= 5);
    const std::vector<float> ascending =
        Elements(MakePool(RowShape::kAscending, DType::kFloat32), 3);
    CHECK(std::is_sorted(ascending.begin(), ascending.end()));
  }

  TEST_CASE("a drafter wants the best id less, and mostly what the target does not want") {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const RowPool target = MakePool(RowShape::kLlm, dtype);
      const RowPool drafter = MakePool(RowShape::kLlm, dtype, true);
      for (int64_t row = 0; row < 12; ++row) {
        const std::vector<float> p = Elements(target, row);
        const std::vector<float> q = Elements(drafter, row);
        CHECK(Probability(q, target.best_id(row)) < Probability(p, target.best_id(row)));
        CHECK(Probability(q, target.worst_id(row)) > 0.1);
        CHECK(Probability(p, target.worst_id(row)) < 1e-8);
      }
    }
  }

  TEST_CASE("recorded rows are taken as they are; a file of another width is refused") {
    const std::string path =
        (std::filesystem::temp_directory_path() / "specd_bench_rows_test.f32").string();
    const std::vector<float> recorded = {1, 2, 3, 4, 5, 6};
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(recorded.data()), sizeof(float) * 6);
    const RowSpec spec{.shape = RowShape::kFile, .path = path, .vocab_size = 3, .num_rows = 3};
    const absl::StatusOr<RowPool> pool = RowPool::Make(spec);
    REQUIRE(pool.ok());
    CHECK(LoadElement(RowAt(pool->view(), 1), 0) == 4);
    CHECK(LoadElement(RowAt(pool->view(), 2), 2) == 3);
    // 0x3F808000 and 0x3F818000 lie halfway: to the even neighbour, down and up.
    const std::vector<float> halfway = {FloatOf(0x3F808000u), FloatOf(0x3F818000u),
                                        FloatOf(0x3F808001u)};
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(halfway.data()), sizeof(float) * 3);
    RowSpec narrow = spec;
    narrow.dtype = DType::kBFloat16;
    const absl::StatusOr<RowPool> rounded = RowPool::Make(narrow);
    REQUIRE(rounded.ok());
    CHECK(LoadElement(RowAt(rounded->view(), 0), 0) == FloatOf(0x3F800000u));
    CHECK(LoadElement(RowAt(rounded->view(), 0), 1) == FloatOf(0x3F820000u));
    CHECK(LoadElement(RowAt(rounded->view(), 0), 2) == FloatOf(0x3F810000u));
    RowSpec wrong = spec;
    wrong.vocab_size = 4;
    CHECK_FALSE(RowPool::Make(wrong).ok());
    std::filesystem::remove(path);
    CHECK_FALSE(RowPool::Make(spec).ok());
  }
}

}  // namespace
}  // namespace specd::bench
