// SGLang's generator: its hash bit for bit, its noise, the law of its draws, and drafts that are
// coupled with their target.
#include "kernels/core/gumbel.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/chi_square.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr float kLog2OfE = 0x1.715476p+0f;

// -ln(-ln x) of SGLang's sampler, with the C library's logarithm.
double Noise(uint32_t hash) {
  const double log_x =
      hash == 0 ? -std::numeric_limits<double>::infinity() : std::log(double(hash) / 4294967295.0);
  const double y = std::min(std::max(log_x, -std::numeric_limits<double>::max()), -0x1p-32);
  return -std::log(-y);
}

struct GumbelCase {
  explicit GumbelCase(std::vector<TokenId> draft)
      : chain(VerifyMethod::kExactMatch, std::move(draft), DraftKind::kOneHot) {
    chain.task.rng = Rng::kSglang;
    chain.task.target_scale = chain.task.draft_scale = kLog2OfE;
  }
  ChainCase chain;
};

std::vector<double> LawOf(const std::vector<double>& logits) {
  std::vector<double> p;
  double sum = 0;
  for (const double l : logits) sum += std::exp(l);
  for (const double l : logits) p.push_back(std::exp(l) / sum);
  return p;
}

// The token that SGLang draws; kNoToken: two scores are too close to tell.
TokenId Expected(const std::vector<double>& logits, uint64_t seed, uint32_t position) {
  double best = -std::numeric_limits<double>::infinity();
  double second = best;
  TokenId token = kNoToken;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double score = logits[id] + Noise(SglangHash(seed, position, static_cast<uint32_t>(id)));
    second = std::max(second, std::min(best, score));
    if (score > best) best = score, token = static_cast<TokenId>(id);
  }
  return best - second < 1e-5 ? kNoToken : token;
}

TEST_SUITE("unit") {
  // Values of an independent reference in Python.
  TEST_CASE("SGLang's hash and its noise") {
    CHECK(SglangHash(0, 0, 0) == 2167721464u);
    CHECK(SglangHash(42, 7, 3) == 966665676u);
    CHECK(SglangHash(uint64_t{1} << 32, 0, 0) == 198364051u);
    CHECK(std::fabs(GumbelOf(0, 0, 0) - 0.3801375633297289) < 1e-14);
    CHECK(std::fabs(GumbelOf(42, 7, 3) + 0.39967941471135) < 1e-13);
    // The spacing of the hashes bounds the noise, and the smallest hash is -ln of the largest
    // double.
    CHECK(GumbelOfHash(0xFFFFFFFFu) == Noise(0xFFFFFFFFu));
    CHECK(GumbelOfHash(0xFFFFFFFFu) <= kGumbelMax);
    CHECK(std::fabs(GumbelOfHash(0) - Noise(0)) < 1e-12);
    std::mt19937_64 random(71);
    for (int i = 0; i < 200'000; ++i) {
      auto hash = static_cast<uint32_t>(random());
      if (i % 3 == 0) hash = ~(hash >> (i % 32));
      if (i % 3 == 1) hash = 1 + (hash >> (i % 32) >> 1);
      const double noise = GumbelOfHash(hash);
      REQUIRE(noise <= kGumbelMax);
      REQUIRE(std::fabs(noise - Noise(hash)) <= 1e-14 * std::max(1.0, std::fabs(noise)));
    }
  }

  TEST_CASE("Ln is within 3 ulp") {
    std::mt19937_64 random(72);
    double worst = 0;
    for (int i = 0; i < 300'000; ++i) {
      const double mantissa = 1 + static_cast<double>(random() >> 12) * 0x1p-52;
      const double x =
          std::ldexp(mantissa, i % 2 == 0 ? -1 : static_cast<int>(random() % 2000) - 1000);
      const long double expected = std::log(static_cast<long double>(x));
      const double ulp =
          std::nextafter(std::fabs(double(expected)), 1e300) - std::fabs(double(expected));
      worst = std::max(worst, double(std::fabs(expected - (long double)(Ln(x)))) / ulp);
    }
    MESSAGE("worst error in ulp: ", worst);
    CHECK(worst < 3);
    CHECK(Ln(1.0) == 0.0);
  }

  TEST_CASE("a draw is the argmax of ln p and noise, the mask included") {
    std::mt19937_64 random(73);
    int num_compared = 0;
    for (const int32_t vocab_size : {2, 5, 300, 2 * kTileSize + 9}) {
      const int num_rows = vocab_size > 1000 ? 20 : 200;
      for (int trial = 0; trial < num_rows; ++trial) {
        CAPTURE(vocab_size);
        CAPTURE(trial);
        RowMatrix rows({.vocab_size = vocab_size, .num_rows = 1});
        std::vector<double> logits = RandomLogits(random, vocab_size);
        for (double& l : logits) {
          if (vocab_size > 2 && random() % 5 == 0) l = -INFINITY;
        }
        logits[0] = 0;
        logits = rows.Set(0, logits);
        GumbelCase c({});
        c.chain.task.seed = random();
        c.chain.task.first_position = static_cast<uint32_t>(random() % 5000);
        c.chain.task.rng_offset = 17;
        const TokenId expected =
            Expected(logits, c.chain.task.seed, c.chain.task.first_position + 17);
        const ChainResult result =
            RunScalar(c.chain.task, rows.view(), TensorView{}, KeyedCoins(c.chain.task.seed));
        REQUIRE(result.tokens.size() == 1);
        if (expected == kNoToken) continue;
        CHECK(result.tokens[0] == expected);
        // A draft of the same seed meets the same noise, which couples it with the target.
        c.chain.task.kind = TaskKind::kSampleDraft;
        c.chain.task.num_children = 1;
        ChainRun drawn(c.chain.task, rows.view(), TensorView{});
        ScalarTeam<CpuTarget::kBaseline> team;
        REQUIRE(drawn.By(team, KeyedCoins(c.chain.task.seed)).num_tokens == 1);
        CHECK(drawn.samples[0].id == expected);
        ++num_compared;
      }
    }
    CHECK(num_compared > 550);
  }

  TEST_CASE("exact_match over SGLang's generator: the text of a seed, for any drafts") {
    std::mt19937_64 random(74);
    constexpr int32_t kVocab = 5;
    int num_accepted = 0;
    for (int trial = 0; trial < 300; ++trial) {
      CAPTURE(trial);
      RowMatrix rows({.vocab_size = kVocab, .num_rows = 5});
      for (int64_t row = 0; row < 5; ++row) rows.Set(row, RandomLogits(random, kVocab));
      std::vector<TokenId> text;
      for (uint32_t i = 0; i < 5; ++i) {
        ChainCase one(VerifyMethod::kExactMatch, {}, DraftKind::kOneHot, i);
        one.task.rng = Rng::kSglang;
        one.task.target_scale = kLog2OfE;
        one.task.seed = 7;
        one.task.first_position = i;
        text.push_back(RunScalar(one.task, rows.view(), TensorView{}, KeyedCoins(7)).tokens[0]);
      }
      std::vector<TokenId> draft(text.begin(), text.end() - 1);
      const auto wrong = size_t(random() % 5);
      if (wrong < 4) draft[wrong] = (draft[wrong] + 1) % kVocab;
      GumbelCase c(draft);
      c.chain.task.seed = 7;
      const ChainResult result = RunScalar(c.chain.task, rows.view(), TensorView{}, KeyedCoins(7));
      CHECK(result.tokens == std::vector<TokenId>(text.begin(), text.begin() + int64_t(wrong) + 1));
      num_accepted += result.outcome.num_accepted;
    }
    CHECK(num_accepted > 300);
  }
}

// The position at which id 0 has the hash 0: the steps of the hash, backwards.
uint32_t PositionOfHash0(uint64_t seed) {
  const auto rotate = [](uint32_t x, int bits) { return x << bits | x >> (32 - bits); };
  const auto inverse = [](uint32_t odd) {
    uint32_t x = odd;
    for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
    return x;
  };
  const auto scramble = [&](uint32_t word) { return rotate(word * 0xCC9E2D51u, 15) * 0x1B873593u; };
  const auto before = [&](uint32_t hash) {
    return rotate((hash - 0xE6546B64u) * inverse(5), 32 - 13);
  };
  uint32_t hash = 0;
  for (const uint32_t word : {uint32_t(seed), uint32_t(seed >> 32)}) {
    hash = rotate(hash ^ scramble(word), 13) * 5 + 0xE6546B64u;
  }
  const uint32_t wanted = before(before(16) ^ scramble(0)) ^ hash;
  return rotate(wanted * inverse(0x1B873593u), 32 - 15) * inverse(0xCC9E2D51u);
}

TEST_SUITE("unit") {
  // Bug: an id whose weight is rounded to 0 was drawn where the hash of the best one is 0.
  TEST_CASE("SGLang's generator draws no id of probability 0, whatever the noise of the others") {
    const uint32_t position = PositionOfHash0(7);
    REQUIRE(SglangHash(7, position, 0) == 0);
    RowMatrix rows({.vocab_size = 3, .num_rows = 1});
    rows.Set(0, {0, -0.9, -0.9});
    GumbelCase c({});
    c.chain.task.seed = 7;
    c.chain.task.first_position = position;
    c.chain.task.target_scale = 100 * kLog2OfE;  // p of the others is below 2^-126
    const ChainResult result = RunScalar(c.chain.task, rows.view(), TensorView{}, KeyedCoins(7));
    CHECK(result.tokens == std::vector<TokenId>{0});
  }
}

TEST_SUITE("statistical") {
  TEST_CASE("SGLang's generator draws from p") {
    const std::vector<double> logits = {0, 1.5, -1, .5, -3};
    RowMatrix rows({.vocab_size = 5, .num_rows = 1});
    rows.Set(0, logits);
    std::vector<int64_t> counts(5);
    for (uint32_t i = 0; i < 60'000; ++i) {
      GumbelCase c({});
      c.chain.task.seed = 3;
      c.chain.task.first_position = i;
      ++counts[size_t(RunScalar(c.chain.task, rows.view(), TensorView{}, KeyedCoins(3)).tokens[0])];
    }
    const ChiSquare test = TestCounts(counts, LawOf(logits));
    MESSAGE("visible total variation: ", test.visible_effect);
    CHECK(test.Fits());
  }
}

}  // namespace
}  // namespace specd
