// The test of counts itself, and one draw from a large row counted. Joint laws over rounds:
// speculation_law_test.cc.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/chi_square.h"
#include "tests/support/rows.h"
#include "tools/oracle/oracle.h"

namespace specd {
namespace {

TEST_SUITE("statistical") {
  TEST_CASE("the test notices a law that is off by its visible effect") {
    std::mt19937_64 random(34);
    std::vector<int64_t> counts(64);
    std::vector<double> law(64, 1.0 / 64);
    for (int n = 0; n < 40000; ++n) ++counts[random() % 64];
    ChiSquare test = TestCounts(counts, law);
    CHECK(test.Fits());
    for (int i = 0; i < 64; ++i) law[i] *= i % 2 == 0 ? 1 + 2 * test.visible_effect : 1;
    for (int i = 0; i < 64; ++i) law[i] -= i % 2 == 1 ? 2 * test.visible_effect / 64 : 0;
    test = TestCounts(counts, law);
    CHECK_FALSE(test.Fits());
    law[5] = 0;
    CHECK(TestCounts(counts, law).impossible);
  }

  TEST_CASE("through the backend: a large vocabulary, one position, many seeds") {
    // Everything about tiles, dtypes and real coins at once: 3 tiles, coarse cells of 128 ids.
    constexpr int32_t kLarge = 3 * kTileSize - 100;
    constexpr int kDraws = 20000;
    std::mt19937_64 random(35);
    RowMatrix rows({.dtype = DType::kBFloat16, .vocab_size = kLarge, .num_rows = 1});
    const std::vector<double> stored = rows.Set(0, RandomLogits(random, kLarge, 1.0));
    const oracle::Probabilities p = *oracle::Softmax(stored, 1 / std::log(2.0));
    std::vector<double> law((kLarge + 127) / 128);
    for (int32_t i = 0; i < kLarge; ++i) law[i / 128] += p[i];
    const std::unique_ptr<Backend> backend = MakeCpuBackend();
    REQUIRE(backend->Prepare({kLarge, 1, 0}).ok());
    std::vector<int64_t> counts(law.size());
    ChainCase chain(VerifyMethod::kExactMatch, {}, DraftKind::kOneHot);
    for (int n = 0; n < kDraws; ++n) {
      chain.task.seed = 1000 + uint64_t(n);
      TaskOutcome outcome;
      TokenId token = -1;
      RoundBatch batch;
      batch.target = rows.view();
      batch.tasks = &chain.task;
      batch.num_tasks = 1;
      batch.outcomes = &outcome;
      batch.tokens = &token;
      batch.tokens_stride = 1;
      REQUIRE(backend->Run(batch).ok());
      ++counts[token / 128];
    }
    const ChiSquare test = TestCounts(counts, law);
    MESSAGE("chi-square ", test.statistic, " with ", test.degrees_of_freedom,
            " degrees of freedom (limit ", test.critical, "), visible effect: total variation ",
            test.visible_effect);
    CHECK(test.visible_effect < 0.06);
    CHECK(test.Fits());
  }
}

}  // namespace
}  // namespace specd
