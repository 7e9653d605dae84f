// Joint laws through real keys: seeds are drawn, drafts are drawn from q, and the first tokens of
// the output over consecutive rounds are counted.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/run_chain.h"
#include "tests/support/chi_square.h"
#include "tests/support/oracle.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = 8;
constexpr int32_t kMaxDraft = 3;

// First-order models: the row for a position depends on the token before it (row V: none).
struct MarkovModel {
  explicit MarkovModel(uint64_t seed, double sharpness)
      : rows({.vocab_size = kVocabSize, .num_rows = kVocabSize + 1}) {
    std::mt19937_64 random(seed);
    for (int32_t row = 0; row <= kVocabSize; ++row) {
      std::vector<double> logits = RandomLogits(random, kVocabSize, sharpness);
      if (row % 3 == 0) logits[random() % kVocabSize] = -INFINITY;
      p.push_back(*oracle::Softmax(rows.Set(row, logits), 1 / std::log(2.0)));
    }
  }
  RowMatrix rows;
  std::vector<oracle::Probabilities> p;
};

int32_t DrawFrom(const oracle::Probabilities& p, std::mt19937_64& random) {
  double u = std::uniform_real_distribution<double>()(random);
  for (int32_t i = 0; i < kVocabSize; ++i) {
    if (u < p[i]) return i;
    u -= p[i];
  }
  return kVocabSize - 1 - (p[kVocabSize - 1] == 0 ? 1 : 0);
}

// The first three tokens of one sequence, by as many rounds as it takes.
std::vector<TokenId> Generate(const MarkovModel& target, const MarkovModel& drafter,
                              VerifyMethod method, DraftKind kind, uint64_t seed,
                              std::mt19937_64& random) {
  std::vector<TokenId> text;
  while (text.size() < 3) {
    const auto row_after = [](TokenId token) { return uint32_t(token < 0 ? kVocabSize : token); };
    std::vector<TokenId> draft;
    std::vector<uint32_t> rows{row_after(text.empty() ? -1 : text.back())};
    for (int32_t i = 0; i < kMaxDraft; ++i) {
      draft.push_back(DrawFrom(drafter.p[rows.back()], random));
      rows.push_back(row_after(draft.back()));
    }
    ChainCase chain(method, draft, kind);
    chain.task.chain.target_rows = rows.data();
    chain.task.chain.draft_rows = rows.data();
    chain.task.first_position = chain.task.round_base = static_cast<uint32_t>(text.size());
    const ChainResult result =
        RunScalar(chain.task, target.rows.view(), drafter.rows.view(), KeyedCoins(seed));
    REQUIRE(result.outcome.status == OutcomeStatus::kOk);
    text.insert(text.end(), result.tokens.begin(), result.tokens.end());
  }
  text.resize(3);
  return text;
}

TEST_SUITE("statistical") {
  TEST_CASE("the joint law of three tokens is the target's, for every method and draft kind") {
    constexpr int kSequences = 40000;
    const MarkovModel target(31, 1.5);
    const MarkovModel drafter(32, 1.5);
    std::vector<double> law;
    for (int32_t i = 0; i < kVocabSize * kVocabSize * kVocabSize; ++i) {
      const int32_t a = i / (kVocabSize * kVocabSize);
      const int32_t b = i / kVocabSize % kVocabSize;
      law.push_back(target.p[kVocabSize][a] * target.p[a][b] * target.p[b][i % kVocabSize]);
    }
    struct Case {
      VerifyMethod method;
      DraftKind kind;
    };
    for (const Case& c : {Case{VerifyMethod::kToken, DraftKind::kSampled},
                          Case{VerifyMethod::kToken, DraftKind::kOneHot},
                          Case{VerifyMethod::kExactMatch, DraftKind::kSampled}}) {
      std::mt19937_64 random(33);
      std::vector<int64_t> counts(law.size());
      for (int n = 0; n < kSequences; ++n) {
        const std::vector<TokenId> text =
            Generate(target, drafter, c.method, c.kind, uint64_t(n), random);
        ++counts[(text[0] * kVocabSize + text[1]) * kVocabSize + text[2]];
      }
      const ChiSquare test = TestCounts(counts, law);
      MESSAGE("chi-square ", test.statistic, " with ", test.degrees_of_freedom,
              " degrees of freedom (limit ", test.critical, "), visible effect: total variation ",
              test.visible_effect);
      CHECK(test.Fits());
      CHECK(test.visible_effect < 0.06);
    }
  }

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
      ChainOutcome outcome;
      TokenId token = -1;
      RoundBatch batch{rows.view(), TensorView{}, &chain.task, 1, &outcome, &token, 1};
      REQUIRE(backend->Run(batch).ok());
      ++counts[token / 128];
    }
    const ChiSquare test = TestCounts(counts, law);
    MESSAGE("chi-square ", test.statistic, " with ", test.degrees_of_freedom,
            " degrees of freedom (limit ", test.critical, "), visible effect: total variation ",
            test.visible_effect);
    CHECK(test.Fits());
  }
}

}  // namespace
}  // namespace specd
