#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
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
  return RowPool({.shape = shape,
                  .dtype = dtype,
                  .vocab_size = kVocabSize,
                  .num_rows = 12,
                  .drafter = drafter});
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

  TEST_CASE("flat rows have most ids in their nucleus") {
    CHECK(NucleusSize(Elements(MakePool(RowShape::kFlat, DType::kFloat32), 3), 0.95) >
          0.7 * kVocabSize);
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

  TEST_CASE("given rows are taken as they are, and a bf16 has the upper half of a float") {
    RowSpec spec{.vocab_size = 3, .num_rows = 3, .given = {{1, 2, 3}, {4, 5, 6}}};
    const RowPool pool(spec);
    CHECK(LoadElement(RowAt(pool.view(), 1), 0) == 4);
    CHECK(LoadElement(RowAt(pool.view(), 2), 2) == 3);
    spec.given = {{FloatOf(0x3F808000u), FloatOf(0x3F81FFFFu), FloatOf(0xBF808001u)}};
    spec.dtype = DType::kBFloat16;
    const RowPool halves(spec);
    CHECK(LoadElement(RowAt(halves.view(), 0), 0) == FloatOf(0x3F800000u));
    CHECK(LoadElement(RowAt(halves.view(), 0), 1) == FloatOf(0x3F810000u));
    CHECK(LoadElement(RowAt(halves.view(), 0), 2) == FloatOf(0xBF800000u));
  }
}

}  // namespace
}  // namespace specd::bench
