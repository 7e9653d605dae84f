#include "kernels/bodies/sample.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "kernels/bodies/residual.h"
#include "kernels/cpu/scalar_team.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/grid_size.h"
#include "tests/support/rows.h"
#include "tools/oracle/oracle.h"

namespace specd {
namespace {

using TestTeam = ScalarTeam<CpuTarget::kBaseline>;
constexpr uint64_t kCoinEnd = uint64_t{1} << kCoinBits;
constexpr double kInf = INFINITY;
// The error of any boundary between two ids, as a coin in [0, 1): docs/ALGORITHMS.md, "Drawing".
constexpr double kBoundaryError = 1e-6;

// Draws from one row, or from the residual of two.
class Drawer {
 public:
  explicit Drawer(const std::vector<double>& p)
      : p_({.vocab_size = static_cast<int32_t>(p.size()), .num_rows = 1}),
        q_(p_),
        workspace_(static_cast<int32_t>(p.size())) {
    p_.Set(0, p);
    Prepare();
  }
  Drawer(const std::vector<double>& p, const std::vector<double>& q)
      : p_({.vocab_size = static_cast<int32_t>(p.size()), .num_rows = 1}),
        q_(p_),
        workspace_(static_cast<int32_t>(p.size())) {
    p_.Set(0, p);
    q_.Set(0, q);
    Prepare();
    q_read_ = ReadDistribution(team_, PlainRow(q_.row(0)), 1.0f, {}, workspace_->draft);
  }

  TokenId FromP(uint64_t coin) { return Sample(team_, p_read_, coin); }
  TokenId FromPWithout(TokenId id, uint64_t coin) { return Sample(team_, p_read_, coin, id); }
  TokenId FromResidual(uint64_t coin) {
    const Residual residual = ReadResidual(team_, p_read_, q_read_, {}, workspace_->residual);
    return SampleResidual(team_, residual, coin);
  }

 private:
  void Prepare() {
    p_read_ = ReadDistribution(team_, PlainRow(p_.row(0)), 1.0f, {}, workspace_->target);
  }

  TestTeam team_;
  RowMatrix p_;
  RowMatrix q_;
  OwnedWorkspace workspace_;
  Distribution p_read_;
  Distribution q_read_;
};

// The first coin in [0, end] for which `draw` gives an id above `id`, by bisection.
template <typename Draw>
uint64_t FirstCoinAbove(const Draw& draw, TokenId id) {
  uint64_t low = 0;
  uint64_t high = kCoinEnd;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (draw(middle) > id) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Every id must own the interval of coins that the inverse CDF gives it.
template <typename Draw>
void CheckIntervals(const Draw& draw, const oracle::Probabilities& p) {
  const std::vector<double> ends = oracle::IntervalEnds(p);
  for (size_t i = 0; i < p.size(); ++i) {
    const double end = CoinToDouble(FirstCoinAbove(draw, static_cast<TokenId>(i)));
    REQUIRE(std::fabs(end - ends[i]) <= kBoundaryError);
  }
  // Bisection saw only some coins; a lattice sees the others, and that ids ascend with the coin.
  TokenId previous = 0;
  for (uint64_t step = 0; step < 4096; ++step) {
    const TokenId id = draw(step * (kCoinEnd / 4096));
    REQUIRE(id >= previous);
    REQUIRE(p[id] > 0);
    previous = id;
  }
  REQUIRE(p[draw(kCoinEnd - 1)] > 0);
}

oracle::Probabilities SoftmaxBase2(const std::vector<double>& logits) {
  return *oracle::Softmax(logits, 1 / std::log(2.0));
}

TEST_SUITE("unit") {
  TEST_CASE("the two levels of the draw join without a seam") {
    // Three tiles, with mass in few ids of each so that bisection is cheap; one tile is empty.
    std::vector<double> logits(4 * kTileSize - 3, -kInf);
    const int32_t ids[] = {0, 255, 256, 2047, 2048, 2300, 6144, 8188};
    std::mt19937_64 random(6);
    for (const int32_t id : ids) logits[id] = std::floor(random() % 400) / 64.0;
    Drawer drawer(logits);
    const oracle::Probabilities p = SoftmaxBase2(logits);
    const std::vector<double> ends = oracle::IntervalEnds(p);
    for (const int32_t id : ids) {
      const auto draw = [&](uint64_t coin) { return drawer.FromP(coin); };
      const double end = CoinToDouble(FirstCoinAbove(draw, id));
      CHECK(std::fabs(end - ends[id]) <= kBoundaryError);
      CHECK(draw(static_cast<uint64_t>((ends[id] - p[id] / 2) * kCoinEnd)) == id);
    }
  }

  TEST_CASE("boundaries are exact where the probabilities are powers of two") {
    // p = 1/2, 1/4, 1/8, 1/8: each coin below the boundary is the left id, the boundary the right.
    Drawer drawer({-1.0, -2.0, -3.0, -3.0});
    const uint64_t ends[] = {kCoinEnd / 2, kCoinEnd / 4 * 3, kCoinEnd / 8 * 7};
    for (int i = 0; i < 3; ++i) {
      CHECK(drawer.FromP(ends[i] - 1) == i);
      CHECK(drawer.FromP(ends[i]) == i + 1);
    }
    CHECK(drawer.FromP(0) == 0);
    CHECK(drawer.FromP(kCoinEnd - 1) == 3);

    // The same between tiles, with an empty one in the middle.
    std::vector<double> logits(3 * kTileSize, -kInf);
    logits[2] = logits[2 * kTileSize] = 1.0;
    Drawer tiles(logits);
    CHECK(tiles.FromP(kCoinEnd / 2 - 1) == 2);
    CHECK(tiles.FromP(kCoinEnd / 2) == 2 * kTileSize);
  }

  TEST_CASE("boundaries between survivors of a filter are exact, in a list and in tiles") {
    // The survivors of top_k have 1/2, 1/4, 1/8, 1/8, and are listed.
    TestTeam team;
    Filters filters;
    filters.top_k = 4;
    RowMatrix few({.vocab_size = 5, .num_rows = 1});
    few.Set(0, {-1.0, -2.0, -3.0, -3.0, -4.0});
    const OwnedWorkspace of_few(5);
    const Distribution listed =
        ReadDistribution(team, PlainRow(few.row(0)), 1.0f, filters, of_few->target);
    REQUIRE(listed.num_listed > 0);
    const uint64_t ends[] = {kCoinEnd / 2, kCoinEnd / 4 * 3, kCoinEnd / 8 * 7};
    for (int i = 0; i < 3; ++i) {
      CHECK(Sample(team, listed, ends[i] - 1) == i);
      CHECK(Sample(team, listed, ends[i]) == i + 1);
    }
    // The survivors are the first 4096 of equal elements, too many for a list.
    filters.top_k = 2 * kTileSize;
    RowMatrix many({.vocab_size = 3 * kTileSize, .num_rows = 1});
    many.Set(0, std::vector<double>(3 * kTileSize, 1.0));
    const OwnedWorkspace of_many(3 * kTileSize);
    const Distribution in_tiles =
        ReadDistribution(team, PlainRow(many.row(0)), 1.0f, filters, of_many->target);
    REQUIRE(in_tiles.num_listed == 0);
    for (const TokenId id : {1, 255, kTileSize, kTileSize + 1, 2 * kTileSize - 1}) {
      const uint64_t end = kCoinEnd / (2 * kTileSize) * static_cast<uint64_t>(id);
      CHECK(Sample(team, in_tiles, end - 1) == id - 1);
      CHECK(Sample(team, in_tiles, end) == id);
    }
  }

  TEST_CASE("p without an id is renormalised, in the id's own tile and in others") {
    std::mt19937_64 random(7);
    for (const TokenId removed : {0, 3, 2050}) {
      std::vector<double> logits(2 * kTileSize, -kInf);
      const TokenId ids[] = {0, 1, 3, 4, 2050, 2051};
      for (const TokenId id : ids) logits[id] = static_cast<double>(random() % 100) / 32.0;
      Drawer drawer(logits);
      const oracle::Probabilities p = SoftmaxBase2(logits);
      const auto expected = oracle::Residual(p, oracle::OneHot(removed, p.size()));
      const std::vector<double> ends = oracle::IntervalEnds(*expected);
      const auto draw = [&](uint64_t coin) { return drawer.FromPWithout(removed, coin); };
      for (const TokenId id : ids) {
        CHECK(std::fabs(CoinToDouble(FirstCoinAbove(draw, id)) - ends[id]) <= kBoundaryError);
      }
      CHECK(draw(0) != removed);
      CHECK(draw(kCoinEnd - 1) != removed);
    }
  }

  TEST_CASE("what is left may be as small as floats go") {
    // The removed id holds all but 2^-120 of the mass.
    Drawer drawer({0.0, -120.0, -121.0});
    CHECK(drawer.FromPWithout(0, 0) == 1);
    CHECK(drawer.FromPWithout(0, kCoinEnd / 3 * 2 - 2) == 1);
    CHECK(drawer.FromPWithout(0, kCoinEnd / 3 * 2 + 2) == 2);
    Drawer alone({-kInf, 4.0, -kInf});
    CHECK(alone.FromPWithout(1, 5) == kNoToken);
  }

  TEST_CASE("the residual is drawn in proportion to (p - q)+") {
    std::mt19937_64 random(8);
    for (const int32_t vocab_size : {2, 3, 5, 20}) {
      for (int repeat = 0; repeat < GridSize({.full = 10, .sanitized = 3}); ++repeat) {
        std::vector<double> p = RandomLogits(random, vocab_size);
        std::vector<double> q = RandomLogits(random, vocab_size);
        for (double& x : p) x = RoundTo(DType::kFloat32, x);
        for (double& x : q) x = RoundTo(DType::kFloat32, x);
        if (repeat % 3 == 1) q[0] = -kInf;
        if (repeat % 3 == 2) p[vocab_size - 1] = -kInf;
        Drawer drawer(p, q);
        const auto expected = oracle::Residual(SoftmaxBase2(p), SoftmaxBase2(q));
        CheckIntervals([&](uint64_t coin) { return drawer.FromResidual(coin); }, *expected);
      }
    }
  }

  TEST_CASE("identical rows leave exactly nothing") {
    std::mt19937_64 random(9);
    for (const int32_t vocab_size : {1, 3, 257, 5000}) {
      const std::vector<double> logits = RandomLogits(random, vocab_size);
      Drawer drawer(logits, logits);
      for (int i = 0; i < 20; ++i) CHECK(drawer.FromResidual(random() >> 11) == kNoToken);
    }
  }

  TEST_CASE("point masses in a residual") {
    Drawer point_q({0.0, 1.0, 0.0}, {0.0, kInf, 0.0});
    CHECK(point_q.FromResidual(0) == 0);
    CHECK(point_q.FromResidual(kCoinEnd / 2 - 1) == 0);
    CHECK(point_q.FromResidual(kCoinEnd / 2) == 2);
    Drawer point_p({0.0, kInf, 0.0}, {0.0, 1.0, 0.0});
    CHECK(point_p.FromResidual(0) == 1);
    CHECK(point_p.FromResidual(kCoinEnd - 1) == 1);
    Drawer both({0.0, kInf}, {0.0, kInf});
    CHECK(both.FromResidual(0) == kNoToken);
  }

  TEST_CASE("a tile whose mass is below 2^-40 of the largest is passed over") {
    std::vector<double> logits(2 * kTileSize, -kInf);
    logits[5] = 0.0;
    logits[kTileSize + 5] = -100.0;
    Drawer drawer(logits);
    CHECK(drawer.FromP(kCoinEnd - 1) == 5);
  }
}

}  // namespace
}  // namespace specd
