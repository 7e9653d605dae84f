// Every team gives the same bits: scalar and emulated primitives, and whole verifications.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/bodies/distribution.h"
#include "kernels/bodies/residual.h"
#include "tests/kernels/run_chain.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr int32_t kBlockSizes[] = {32, 64, 128, 256, 1024};

// Everything a team computes about the first tile of two rows.
struct TileFacts {
  float max, sum, residual_sum, residual_max;
  uint64_t total, residual_total;
  int32_t first_of_max, prefix, residual_prefix, beyond;

  bool operator==(const TileFacts& other) const {
    return std::memcmp(this, &other, sizeof(*this)) == 0;
  }
};

template <Team T>
TileFacts FactsOf(T& team, const RowView& p, const RowView& q, int32_t removed) {
  typename T::Tile p_tile;
  typename T::Tile q_tile;
  team.Load(p, 0, &p_tile);
  team.Load(q, 0, &q_tile);
  TileFacts facts;
  std::memset(&facts, 0, sizeof(facts));
  facts.max = team.Max(Identity{}, p_tile);
  facts.first_of_max = team.FindFirst(EqualTo{facts.max}, p_tile);
  if (removed >= 0) team.Remove(removed, &p_tile);
  const WeightFunction weight{facts.max, 1.25f};
  const ResidualFunction residual{weight, {team.Max(Identity{}, q_tile), 0.75f}, 0.01f, 0.013f};
  facts.sum = team.Sum(weight, p_tile);
  facts.total = team.SumWeights(weight, 0, p_tile);
  facts.prefix = team.FindPrefix(weight, 0, facts.total / 3, p_tile);
  facts.beyond = team.FindPrefix(weight, 0, facts.total, p_tile);
  facts.residual_sum = team.Sum(residual, p_tile, q_tile);
  facts.residual_max = team.Max(residual, p_tile, q_tile);
  const int32_t exponent = ExponentOf(facts.residual_max);
  facts.residual_total = team.SumWeights(residual, exponent, p_tile, q_tile);
  facts.residual_prefix =
      team.FindPrefix(residual, exponent, facts.residual_total / 2, p_tile, q_tile);
  return facts;
}

TEST_SUITE("unit") {
  TEST_CASE("primitives of the scalar and the emulated team agree bit for bit") {
    std::mt19937_64 random(10);
    for (const int32_t vocab_size : {1, 7, 8, 9, 31, 33, 255, 256, 257, 1000, 2047, 2048, 3000}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        CAPTURE(vocab_size);
        CAPTURE(static_cast<int>(dtype));
        RowMatrix rows({.dtype = dtype, .vocab_size = vocab_size, .num_rows = 2, .padding = 3});
        rows.Set(0, RandomLogits(random, vocab_size));
        rows.Set(1, RandomLogits(random, vocab_size));
        const int32_t in_tile = std::min(vocab_size, kTileSize);
        const auto removed = static_cast<int32_t>(random() % in_tile);
        ScalarTeam<CpuTarget::kBaseline> scalar;
        const TileFacts expected = FactsOf(scalar, rows.row(0), rows.row(1), removed);
        CHECK(expected.beyond == -1);
        std::vector<TileFacts> facts(64);
        const std::string error =
            RunEmulatedBlock({.num_threads = 64, .schedule_seed = random()}, [&](auto thread) {
              EmulatedTeam team(thread);
              facts[thread.warp() * 32 + thread.lane()] =
                  FactsOf(team, rows.row(0), rows.row(1), removed);
            });
        REQUIRE(error == "");
        for (const TileFacts& thread_facts : facts) REQUIRE(thread_facts == expected);
      }
    }
  }

  // The sum as CONTRACT §9 spells it, which neither team spells that way.
  TEST_CASE("the sum of a tile follows the canonical order") {
    std::mt19937_64 random(11);
    for (const int32_t vocab_size : {1, 300, 2000, 2048}) {
      RowMatrix rows({.vocab_size = vocab_size, .num_rows = 1});
      const std::vector<double> logits = rows.Set(0, RandomLogits(random, vocab_size, 4.0));
      float lanes[256] = {};
      for (int32_t v = 0; v < 256; ++v) {
        for (int32_t e = v; e < kTileSize; e += 256) {
          lanes[v] += e < vocab_size ? Exp2((float(logits[e]) - 9.0f) * 1.5f) : 0.0f;
        }
      }
      for (int k = 0; k < 8; ++k) {
        float next[256];
        for (int v = 0; v < 256; ++v) next[v] = lanes[v] + lanes[v ^ (1 << k)];
        std::memcpy(lanes, next, sizeof(lanes));
      }
      ScalarTeam<CpuTarget::kBaseline> team;
      ScalarTeam<CpuTarget::kBaseline>::Tile tile;
      team.Load(rows.row(0), 0, &tile);
      CHECK(BitsOf(team.Sum(WeightFunction{9.0f, 1.5f}, tile)) == BitsOf(lanes[0]));
      CHECK(BitsOf(team.Sum(WeightFunction{9.0f, 1.5f}, tile)) == BitsOf(lanes[255]));
    }
  }

  TEST_CASE("a whole verification is the same under every block size and schedule") {
    std::mt19937_64 random(12);
    const int32_t vocab_size = 2 * kTileSize + 77;
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      for (int repeat = 0; repeat < 12; ++repeat) {
        const DType dtype = static_cast<DType>(repeat % 3);
        RowMatrix target({.dtype = dtype, .vocab_size = vocab_size, .num_rows = 3, .offset = 1});
        RowMatrix draft({.dtype = dtype, .vocab_size = vocab_size, .num_rows = 3});
        for (int row = 0; row < 3; ++row) {
          std::vector<double> logits = RandomLogits(random, vocab_size);
          // Few likely ids, so that drafts are sometimes accepted and residuals sometimes taken.
          for (int spike = 0; spike < 3; ++spike) logits[spike * 2000 + repeat] += 12;
          if (repeat == 7) logits[random() % logits.size()] = INFINITY;
          if (repeat == 8) logits[random() % logits.size()] = NAN;
          target.Set(row, logits);
          for (double& x : logits) x += static_cast<double>(random() % 100) / 50;
          draft.Set(row, logits);
        }
        const TokenId likely = 2000 * static_cast<TokenId>(random() % 3) + repeat;
        ChainCase chain(method, {likely, repeat == 9 ? -5 : likely},
                        repeat % 2 == 0 ? DraftKind::kSampled : DraftKind::kOneHot);
        const KeyedCoins coins(random());
        const ChainResult expected = RunScalar(chain.task, target.view(), draft.view(), coins);
        for (const int32_t num_threads : kBlockSizes) {
          CAPTURE(num_threads);
          CAPTURE(repeat);
          const ChainResult result =
              RunEmulated(chain.task, target.view(), draft.view(), coins,
                          {.num_threads = num_threads, .schedule_seed = random()});
          REQUIRE(result == expected);
        }
      }
    }
  }

  // Two groups only overlap where one is still reading what the other writes again; that takes
  // several rounds of passes and many schedules to meet.
  TEST_CASE("a workspace is never written again before it has been read") {
    std::mt19937_64 random(13);
    const int32_t vocab_size = 6 * kTileSize;
    RowMatrix rows({.vocab_size = vocab_size, .num_rows = 5});
    for (int row = 0; row < 5; ++row) {
      std::vector<double> logits(vocab_size, -8.0 + row);
      logits[(2048 * row + 5) % vocab_size] = 30;
      rows.Set(row, logits);
    }
    std::vector<TokenId> draft;
    for (int row = 0; row < 4; ++row) draft.push_back((2048 * row + 5) % vocab_size);
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      ChainCase chain(method, draft, DraftKind::kSampled);
      const ChainResult expected = RunScalar(chain.task, rows.view(), rows.view(), KeyedCoins(1));
      CHECK(expected.outcome.num_accepted == 4);
      for (uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        const ChainResult result = RunEmulated(chain.task, rows.view(), rows.view(), KeyedCoins(1),
                                               {.num_threads = 128, .schedule_seed = seed});
        REQUIRE(result == expected);
      }
    }
  }
}

}  // namespace
}  // namespace specd
