#include "kernels/bodies/distribution.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/bodies/argmax.h"
#include "kernels/cpu/scalar_team.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/rows.h"
#include "tools/oracle/oracle.h"

namespace specd {
namespace {

constexpr int32_t kVocabSizes[] = {1,   2,   3,    31,   32,   33,   111,  255,
                                   256, 257, 2047, 2048, 2049, 4096, 32000};
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr double kInf = INFINITY;

using TestTeam = ScalarTeam<CpuTarget::kBaseline>;

struct Read {
  Distribution distribution;
  TokenId argmax;
  RowFault fault;  // of the argmax
};

Read ReadRow(const RowView& row, double temperature) {
  TestTeam team;
  Read read;
  const OwnedWorkspace workspace(row.vocab_size);
  const GreedyToken greedy = Argmax(team, PlainRow(row), workspace->target);
  read.argmax = greedy.token;
  read.fault = greedy.fault;
  const auto scale = static_cast<float>(std::log2(std::exp(1.0)) / temperature);
  read.distribution = ReadDistribution(team, PlainRow(row), scale, {}, workspace->target);
  return read;
}

Read ReadValues(const std::vector<double>& values) {
  RowMatrix matrix({.vocab_size = static_cast<int32_t>(values.size()), .num_rows = 1});
  matrix.Set(0, values);
  Read read = ReadRow(matrix.row(0), 1.0);
  // The memory goes away, and only the numbers are looked at.
  read.distribution.row.view.data = nullptr;
  return read;
}

void CheckAgainstOracle(const RowView& row, const std::vector<double>& stored, double temperature) {
  const Read read = ReadRow(row, temperature);
  const auto p = oracle::Softmax(stored, temperature);
  REQUIRE(p.has_value());
  REQUIRE(read.argmax == *oracle::Argmax(stored));
  REQUIRE_FALSE(read.distribution.bad());
  for (int32_t i = 0; i < row.vocab_size; ++i) {
    const double kernel = WeightOf(read.distribution, i) / read.distribution.mass;
    // (l - m) * c carries three roundings of relative size 2^-24. The relative error of p therefore
    // grows with ln(p_max / p), which is at most 88 for weights above 0.
    const double depth = (stored[read.argmax] - stored[i]) / temperature;
    REQUIRE(std::fabs(kernel - (*p)[i]) <= (*p)[i] * (1 + std::min(depth, 88.0)) * 3e-7 + 1e-37);
  }
}

TEST_SUITE("unit") {
  TEST_CASE("p equals softmax for every shape, type, stride, mask and temperature") {
    std::mt19937_64 random(4);
    for (const int32_t vocab_size : kVocabSizes) {
      for (const DType dtype : kDTypes) {
        for (const int64_t offset : {0, 1, 3}) {
          CAPTURE(vocab_size);
          CAPTURE(static_cast<int>(dtype));
          RowMatrix matrix({.dtype = dtype,
                            .vocab_size = vocab_size,
                            .num_rows = 2,
                            .padding = offset * 2 + 1,
                            .offset = offset});
          std::vector<double> logits = RandomLogits(random, vocab_size);
          CheckAgainstOracle(matrix.row(0), matrix.Set(0, logits), 0.7);
          // Most ids forbidden, as a grammar does; one always stays.
          for (double& x : logits) {
            if (random() % 4 != 0) x = -kInf;
          }
          logits[random() % logits.size()] = 1.5;
          CheckAgainstOracle(matrix.row(1), matrix.Set(1, logits), 1.3);
        }
      }
    }
  }

  TEST_CASE("the mass is the exact sum of fp32 weights to within the rounding of the sums") {
    // Uniform rows: every weight is 1, so the mass is V exactly, tails included.
    for (const int32_t vocab_size : kVocabSizes) {
      const Read read = ReadValues(std::vector<double>(vocab_size, -3.25));
      CHECK(read.distribution.mass == vocab_size);
    }
  }

  TEST_CASE("ties go to the lowest id, wherever they stand") {
    for (const int32_t vocab_size : {2, 33, 257, 2049, 6000}) {
      for (int32_t first = 0; first < vocab_size; first += vocab_size / 7 + 1) {
        std::vector<double> logits(vocab_size, -1.0);
        for (int32_t i = first; i < vocab_size; i += 5) logits[i] = 2.0;
        CHECK(ReadValues(logits).argmax == first);
      }
    }
    CHECK(ReadValues(std::vector<double>(5000, 1.0)).argmax == 0);
  }

  TEST_CASE("minus zero and zero are one value") {
    CHECK(ReadValues({-1.0, -0.0, 0.0}).argmax == 1);
    CHECK(ReadValues({-1.0, 0.0, -0.0}).argmax == 1);
    std::vector<double> logits(3000, -0.0);
    logits[2500] = 0.0;
    CHECK(ReadValues(logits).argmax == 0);
  }

  TEST_CASE("+inf is a point mass on the lowest such id") {
    std::vector<double> logits(4200, 0.0);
    logits[4100] = logits[2100] = kInf;
    const Read read = ReadValues(logits);
    CHECK(read.argmax == 2100);
    CHECK_FALSE(read.distribution.bad());
    CHECK(read.distribution.point == 2100);
    CHECK(WeightOf(read.distribution, 2100) == read.distribution.mass);
    CHECK(WeightOf(read.distribution, 4100) == 0);
    CHECK(WeightOf(read.distribution, 0) == 0);
  }

  TEST_CASE("a NaN anywhere and a row without mass are bad rows") {
    for (const int32_t vocab_size : kVocabSizes) {
      CAPTURE(vocab_size);
      Read read = ReadValues(std::vector<double>(vocab_size, -kInf));
      CHECK(read.argmax == kNoToken);
      CHECK(read.fault == RowFault::kNoMass);
      CHECK(read.distribution.fault == RowFault::kNoMass);
      for (const int32_t place : {0, vocab_size / 2, vocab_size - 1}) {
        for (const double rest : {1.0, -kInf, kInf}) {
          std::vector<double> logits(vocab_size, rest);
          logits[place] = NAN;
          read = ReadValues(logits);
          CHECK(read.argmax == kNoToken);
          CHECK(read.fault == RowFault::kNan);
          CHECK(read.distribution.fault == RowFault::kNan);
        }
      }
    }
  }

  TEST_CASE("ids outside the vocabulary have weight 0 and are no index") {
    const Read read = ReadValues({0.0, 1.0});
    for (const TokenId id : {-2147483647 - 1, -2, -1, 2, 2147483647}) {
      CHECK(WeightOf(read.distribution, id) == 0.0f);
    }
  }

  TEST_CASE("finite extremes stay finite") {
    const Read read = ReadValues({3.4e38, -3.4e38, 3.4e38});
    CHECK_FALSE(read.distribution.bad());
    CHECK(read.distribution.mass == 2.0);
  }
}

}  // namespace
}  // namespace specd
