// The cases of the peers' tests that concern one row: filters, edits, greedy, degenerate rows. A
// name begins with the peer that has the case in its tests: FlashInfer in
// <tests/utils/test_sampling.py>, vLLM in <tests/v1/sample>. The oracle gives all expected values.
// If a peer's test gives values too, they are expected as well.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "tests/kernels/bodies/row_law.h"

namespace specd {
namespace {

using Ids = std::vector<int>;
constexpr double kInf = INFINITY;

// ln of probabilities, as a row of logits.
std::vector<double> LnOf(const std::vector<double>& p) { return oracle::LogOf(p); }

std::vector<double> RandomRow(uint64_t seed, int32_t vocab_size, double sigma = 2.0) {
  std::mt19937_64 random(seed);
  return RandomLogits(random, vocab_size, sigma);
}

TEST_SUITE("unit") {
  TEST_CASE("FlashInfer: softmax at T = 1, .5, .1 with random -inf masks") {
    std::mt19937_64 random(101);
    for (const int32_t vocab_size : {1, 3, 111}) {
      for (const double temperature : {1.0, 0.5, 0.1}) {
        RowCase c{.row = RandomLogits(random, vocab_size), .temperature = temperature};
        for (int i = 1; i < vocab_size; ++i) {
          if (random() % 2 == 0) c.row[i] = -kInf;
        }
        CheckRowLaw(c);
      }
    }
  }

  TEST_CASE("FlashInfer: ids without mass are never drawn, at zero ratios 0, .5 and .9") {
    std::mt19937_64 random(102);
    for (const int zeros : {0, 5, 9}) {
      std::vector<double> p(111);
      double sum = 0;
      for (double& x : p)
        sum += x = static_cast<int>(random() % 10) < zeros ? 0 : 1 + double(random() % 100);
      for (double& x : p) x /= sum;
      CheckRowLaw({.row = LnOf(p)});
      CheckRowLaw({.row = p, .kind = RowKind::kProbabilities});
      CheckRowLaw({.row = p, .kind = RowKind::kFinalProbabilities});
    }
  }

  TEST_CASE("survivors without one id, listed and in many tiles") {
    for (const int top_k : {50, 5000}) {
      for (const TokenId removed : {3, 2047, 4100}) {
        RowCase c{.row = RandomRow(148, 3 * kTileSize, 0.3), .truncation = {.top_k = top_k}};
        c.row[removed] += 7;
        KernelRow kernel(c);
        kernel.Read();
        const oracle::Probabilities p = ExpectedLaw(c, kernel.stored());
        const std::vector<double> ends =
            oracle::IntervalEnds(*oracle::Residual(p, oracle::OneHot(removed, p.size())));
        for (int step = 0; step < 200; ++step) {
          const double u = (step + 0.37) / 200;
          const TokenId id = kernel.DrawWithout(removed, static_cast<uint64_t>(u * 0x1p53));
          REQUIRE(id != removed);
          REQUIRE(u < ends[id] + 2e-6);
          REQUIRE((id == 0 || u > ends[id - 1] - 2e-6));
        }
      }
    }
  }

  TEST_CASE("FlashInfer: min_p .05, .1, .2, .7, 1") {
    for (const double min_p : {0.05, 0.1, 0.2, 0.7, 1.0}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        CheckRowLaw({.row = RandomRow(107, 111), .truncation = {.min_p = min_p}, .dtype = dtype});
      }
    }
    // p >= min_p * p_max holds for ties of the largest at min_p = 1.
    CHECK(SupportOf(CheckRowLaw({.row = {1, 3, 3, 2, 3}, .truncation = {.min_p = 1}})) ==
          Ids{1, 2, 4});
  }

  TEST_CASE("FlashInfer: the same filters on probabilities and on their logits agree") {
    std::mt19937_64 random(108);
    for (int repeat = 0; repeat < 6; ++repeat) {
      const bool joint = repeat % 2 == 1;
      const std::vector<double> logits = RandomLogits(random, 111);
      const oracle::Truncation truncation{.top_k = 3 + repeat * 7, .top_p = 0.9, .joint = joint};
      std::vector<double> p = *oracle::Softmax(logits, 1);
      for (double& x : p) x = RoundTo(DType::kFloat32, x);
      const std::vector<double> a = CheckRowLaw({.row = logits, .truncation = truncation});
      const std::vector<double> b =
          CheckRowLaw({.row = p, .truncation = truncation, .kind = RowKind::kProbabilities});
      CHECK(SupportOf(a) == SupportOf(b));
    }
  }

  TEST_CASE("FlashInfer: exactly k survive top_k, with ties and with -inf") {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      std::mt19937_64 random(111);
      std::vector<double> row(111);
      for (double& x : row) x = static_cast<double>(random() % 4);  // nearly all are ties
      for (int i = 0; i < 111; i += 3) row[i] = -kInf;
      for (const int top_k : {1, 2, 10, 73, 74, 75, 111}) {
        const std::vector<double> law =
            CheckRowLaw({.row = row, .truncation = {.top_k = top_k}, .dtype = dtype});
        CHECK(SupportOf(law).size() == size_t(std::min(top_k, 74)));
      }
    }
  }

  TEST_CASE("TensorRT-LLM: top_p .2, .9, 1 at V = 4 and .8 at V = 50") {
    for (const double top_p : {0.2, 0.9, 1.0}) {
      CheckRowLaw({.row = LnOf({0.1, 0.4, 0.3, 0.2}),
                   .truncation = {.top_p = top_p},
                   .dtype = DType::kFloat16});
      CheckRowLaw({.row = RandomRow(125, 6), .truncation = {.top_p = top_p}});
    }
    CheckRowLaw({.row = RandomRow(126, 50), .truncation = {.top_p = 0.8}});
    CHECK(SupportOf(CheckRowLaw(
              {.row = LnOf({0.1, 0.4, 0.3, 0.2}), .truncation = {.top_p = 0.2}})) == Ids{1});
  }

  TEST_CASE("CONTRACT 3: top_p keeps the shortest prefix whose mass reaches p, exactly") {
    // Powers of two, so that masses are exact: the prefix 1/2 + 1/4 reaches 3/4 and no more is
    // kept.
    const std::vector<double> row = LnOf({0.125, 0.5, 0.125, 0.25});
    const RowCase exact{
        .row = {-3, -1, -3, -2}, .temperature = 1 / std::log(2.0), .truncation = {.top_p = 0.75}};
    CHECK(SupportOf(CheckRowLaw(exact)) == Ids{1, 3});
    RowCase more = exact;
    more.truncation.top_p = 0.75 + 0x1p-40;
    CHECK(SupportOf(CheckRowLaw(more)) == Ids{0, 1, 3});
    RowCase half = exact;
    half.truncation.top_p = 0.5;
    CHECK(SupportOf(CheckRowLaw(half)) == Ids{1});
    half.truncation.top_p = 0.5 + 0x1p-53;  // 1/2 does not reach it
    CHECK(SupportOf(CheckRowLaw(half)) == Ids{1, 3});
    CHECK(SupportOf(CheckRowLaw({.row = row, .truncation = {.top_p = 1e-9}})) == Ids{1});
  }

  TEST_CASE("an element at the upper end of the search's bracket is counted once") {
    // The search for top_p first tries 2^-8 and then 2^-16. The nucleus ends among the elements of
    // 2^-12, and ten elements are 2^-8 exactly.
    std::vector<double> row(2 * kTileSize, -100.0);
    row[0] = 0.0;
    for (size_t i = 0; i < 10; ++i) row[1 + i] = -8.0;
    for (size_t i = 0; i < 100; ++i) row[100 + i] = -12.0;
    const double mass = 1 + 10 * 0x1p-8 + 100 * 0x1p-12;
    const double top_p = (1 + 10 * 0x1p-8 + 49.5 * 0x1p-12) / mass;
    const std::vector<double> law =
        CheckRowLaw({.row = row, .temperature = 1 / std::log(2.0), .truncation = {.top_p = top_p}});
    CHECK(SupportOf(law).size() == 1 + 10 + 50);
  }

  TEST_CASE("CONTRACT 3: filters in order, each on the renormalised survivors, or jointly") {
    // p = .4 .3 .2 .1: top_k 2 leaves 4/7 and 3/7, so the first alone reaches top_p .55. Jointly,
    // .4 does not reach it.
    const std::vector<double> row = LnOf({0.1, 0.2, 0.3, 0.4});
    CHECK(SupportOf(CheckRowLaw({.row = row, .truncation = {.top_k = 2, .top_p = 0.55}})) ==
          Ids{3});
    CHECK(SupportOf(CheckRowLaw(
              {.row = row, .truncation = {.top_k = 2, .top_p = 0.55, .joint = true}})) ==
          Ids{2, 3});
    // min_p .6 leaves .4 and .3, on which top_p .55 is again reached by the first.
    CHECK(SupportOf(CheckRowLaw({.row = row, .truncation = {.min_p = 0.6, .top_p = 0.55}})) ==
          Ids{3});
    std::mt19937_64 random(109);
    for (int repeat = 0; repeat < 300; ++repeat) {
      const oracle::Truncation truncation{.min_p = repeat % 3 == 0 ? 0 : 0.02 * (repeat % 7),
                                          .top_k = repeat % 4 == 0 ? 0 : 1 + repeat % 13,
                                          .top_p = repeat % 5 == 0 ? 1 : 0.3 + 0.002 * repeat,
                                          .joint = repeat % 2 == 1};
      CheckRowLaw({.row = RandomLogits(random, 40),
                   .temperature = 0.5 + 0.01 * repeat,
                   .truncation = truncation});
    }
  }

  TEST_CASE("filters of any mix, on rows with and without ties") {
    std::mt19937_64 random(20);
    for (int repeat = 0; repeat < 200; ++repeat) {
      const int32_t vocab_size = std::vector<int32_t>{2, 40, 2049, 5000}[repeat % 4];
      RowCase c{.row = RandomLogits(random, vocab_size)};
      const auto unit = [&] { return static_cast<double>(1 + random() % 1000) / 1001; };
      if (random() % 3 == 0) {
        for (double& x : c.row) x = std::floor(x);
      }
      if (random() % 2 == 0) c.truncation.min_p = std::pow(unit(), 3);
      if (random() % 2 == 0) c.truncation.top_k = 1 + static_cast<int>(random() % vocab_size);
      if (random() % 2 == 0) c.truncation.top_p = 1 - std::pow(unit(), 2);
      c.truncation.joint = random() % 2 == 0;
      CAPTURE(repeat);
      CheckRowLaw(c);
    }
  }

  TEST_CASE("CONTRACT 3: the order of ties is id ascending, for argmax, top_k and top_p") {
    const std::vector<double> row{1, 2, -0.0, 2, 0.0, 2, 1};
    CHECK(KernelRow({.row = row}).Greedy() == 1);
    CHECK(SupportOf(CheckRowLaw({.row = row, .truncation = {.top_k = 2}})) == Ids{1, 3});
    CHECK(SupportOf(CheckRowLaw({.row = row, .truncation = {.top_k = 4}})) == Ids{0, 1, 3, 5});
    CHECK(SupportOf(CheckRowLaw({.row = row, .truncation = {.top_k = 6}})) ==
          Ids{0, 1, 2, 3, 5, 6});
    CHECK(SupportOf(CheckRowLaw({.row = row, .truncation = {.top_p = 0.4}})) == Ids{1, 3});
    // The order is that of the row after step 6: weights that round to one value keep it.
    CHECK(SupportOf(CheckRowLaw(
              {.row = {1, 1 + 0x1p-20, 1}, .temperature = 100, .truncation = {.top_k = 1}})) ==
          Ids{1});
  }

  TEST_CASE("ascending and descending rows, the worst of selections") {
    std::vector<double> row(5000);
    std::iota(row.begin(), row.end(), -5000.0);
    for (int direction = 0; direction < 2; ++direction) {
      for (double& x : row) x /= 64;
      CheckRowLaw({.row = row, .truncation = {.top_k = 40}});
      CheckRowLaw({.row = row, .truncation = {.top_k = 100, .top_p = 0.6}});
      CheckRowLaw({.row = row, .truncation = {.min_p = 0.5}});
      for (double& x : row) x *= 64;
      std::reverse(row.begin(), row.end());
    }
  }

  TEST_CASE("parameters at their ends") {
    const std::vector<double> row = RandomRow(143, 30);
    for (const int top_k : {0, 1, 29, 30, 31, 2147483647}) {
      CheckRowLaw({.row = row, .truncation = {.top_k = top_k}});
      CheckRowLaw({.row = row, .truncation = {.top_k = top_k, .top_p = 0.7, .joint = true}});
    }
    for (const double top_p : {0x1p-53, 1e-12, 1 - 0x1p-52}) {
      CheckRowLaw({.row = row, .truncation = {.top_p = top_p}});
    }
    for (const double min_p : {0.0, 1e-30, 1.0}) {
      CheckRowLaw({.row = row, .truncation = {.min_p = min_p}});
    }
    for (const double temperature : {1e-5, 1e-3, 1.0, 100.0, 1e6}) {
      CheckRowLaw({.row = row, .temperature = temperature});
    }
  }

  TEST_CASE("vLLM: the tail of a row with a head of e^18 keeps its mass at V = 200000") {
    std::vector<double> row(200000, 0.0);
    row[777] = 18;
    KernelRow kernel({.row = row});
    kernel.Read();
    const double tail = 199999 / (199999 + std::exp(18.0));
    const double before = 777 / (199999 + std::exp(18.0));
    CHECK(kernel.Draw(uint64_t(before * 0x1p53 * 0.999)) < 777);
    CHECK(kernel.Draw(uint64_t((before * 1.001) * 0x1p53)) == 777);
    CHECK(kernel.Draw(uint64_t((1 - (tail - before) * 1.001) * 0x1p53)) == 777);
    CHECK(kernel.Draw(uint64_t((1 - (tail - before) * 0.999) * 0x1p53)) > 777);
  }

  TEST_CASE("vLLM: top_k and top_p against a sort, at V = 20000") {
    for (const oracle::Truncation& truncation :
         {oracle::Truncation{.top_k = 50}, oracle::Truncation{.top_p = 0.1},
          oracle::Truncation{.min_p = 0.01, .top_k = 200, .top_p = 0.5},
          oracle::Truncation{.top_k = 7000, .top_p = 0.9},
          oracle::Truncation{.min_p = 0.001, .top_k = 9000, .top_p = 0.99, .joint = true}}) {
      CheckRowLaw({.row = RandomRow(144, 20000, 3.0), .truncation = truncation});
      // Flat: the survivors fill many tiles.
      CheckRowLaw({.row = RandomRow(146, 20000, 0.3), .truncation = truncation});
      std::vector<double> steps = RandomRow(147, 20000, 1.0);
      for (double& x : steps) x = std::floor(x);
      CheckRowLaw({.row = steps, .truncation = truncation});
      CheckRowLaw(
          {.row = RandomRow(145, 20000, 3.0), .truncation = truncation, .dtype = DType::kBFloat16});
    }
  }
}

}  // namespace
}  // namespace specd
