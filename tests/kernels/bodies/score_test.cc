// Logprobs, ranks and best ids (CONTRACT §3) against the oracle, with speculation and without.
// Cases of vLLM are those of its <tests/v1/sample/test_logprobs.py>.
#include "kernels/bodies/score.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/bodies/packed_steps.h"
#include "tests/kernels/bodies/row_law.h"
#include "tests/kernels/bodies/run_chain.h"

namespace specd {
namespace {

constexpr double kInf = INFINITY;
constexpr ScoreMode kModes[] = {ScoreMode::kRawLogprob, ScoreMode::kProcessedLogprob,
                                ScoreMode::kRawLogit, ScoreMode::kProcessedLogit,
                                ScoreMode::kUnfilteredLogprob};

bool IsOfRawRow(ScoreMode mode) {
  return mode == ScoreMode::kRawLogprob || mode == ScoreMode::kRawLogit;
}

bool IsFiltered(ScoreMode mode) {
  return mode == ScoreMode::kProcessedLogprob || mode == ScoreMode::kProcessedLogit;
}

// The value that a mode reports of every id.
std::vector<double> ValuesOf(const RowCase& c, const std::vector<double>& stored, ScoreMode mode) {
  const oracle::Logits raw = c.kind == RowKind::kLogits ? stored : oracle::LogOf(stored);
  oracle::Logits l = IsOfRawRow(mode) ? raw : *oracle::AfterSteps(raw, c.steps);
  const double temperature = IsOfRawRow(mode) ? 1 : c.temperature;
  const oracle::Truncation truncation = IsFiltered(mode) ? c.truncation : oracle::Truncation{};
  const std::vector<bool> kept = oracle::Survivors(l, temperature, truncation);
  for (size_t id = 0; id < l.size(); ++id) {
    // Step 8 comes before step 11: a processed logit has been divided by the temperature.
    l[id] = kept[id] ? l[id] / temperature : -INFINITY;
  }
  if (mode == ScoreMode::kRawLogit || mode == ScoreMode::kProcessedLogit) return l;
  return oracle::Logprobs(*oracle::Softmax(l, 1));
}

// The scores of given ids in one row, by a task that samples nothing.
struct Scored {
  TaskOutcome outcome;
  std::vector<TokenScore> scores;
};
Scored ScoreRow(const RowCase& c, const ScoreRequest& request, TokenId token,
                std::vector<double>* stored = nullptr) {
  RowMatrix rows({.dtype = c.dtype,
                  .vocab_size = static_cast<int32_t>(c.row.size()),
                  .num_rows = 2,
                  .rules = {.kind = c.kind}});
  const std::vector<double> values = rows.Set(0, c.row);
  if (stored != nullptr) *stored = values;
  ChainCase chain(VerifyMethod::kGreedy, {token}, DraftKind::kOneHot);
  const PackedSteps packed({c.steps, c.steps}, static_cast<int32_t>(c.row.size()));
  packed.Apply(&chain.task);
  chain.task.kind = TaskKind::kScore;
  chain.task.target_scale = ScaleOf(c.temperature);
  chain.task.target_filters = FiltersOf(c.truncation);
  chain.task.scores = request;
  ChainRun run(chain.task, rows.view(), TensorView{}, packed.mask());
  ScalarTeam<CpuTarget::kBaseline> team;
  const TaskOutcome outcome = run.By(team, KeyedCoins(1));
  return {outcome, run.scores};
}

void CheckScore(const TokenScore& score, const std::vector<double>& values, int id) {
  REQUIRE(score.id == id);
  REQUIRE(score.rank == oracle::RankOf(values, id));
  if (values[id] == -INFINITY) {
    REQUIRE(score.value == -kInfinity);
  } else {
    REQUIRE(std::fabs(score.value - values[id]) <= 3e-6 * (1 + std::fabs(values[id])));
  }
}

void CheckScores(const RowCase& c, TokenId token) {
  const std::vector<TokenId> chosen = {0, token, static_cast<TokenId>(c.row.size()) - 1};
  for (const ScoreMode mode : kModes) {
    CAPTURE(static_cast<int>(mode));
    std::vector<double> stored;
    const Scored scored = ScoreRow(
        c, {.enabled = true, .mode = mode, .num_top = 5, .chosen = chosen.data(), .num_chosen = 3},
        token, &stored);
    REQUIRE(scored.outcome.status == OutcomeStatus::kOk);
    REQUIRE(scored.outcome.num_tokens == 1);
    const std::vector<double> values = ValuesOf(c, stored, mode);
    CheckScore(scored.scores[0], values, token);
    const std::vector<int> top = oracle::TopIds(values, 5);
    for (size_t n = 0; n < 5; ++n) {
      const TokenScore& score = scored.scores[1 + n];
      if (n < top.size()) {
        CheckScore(score, values, top[n]);
      } else {
        REQUIRE(score.id == kNoToken);
      }
    }
    for (int n = 0; n < 3; ++n) CheckScore(scored.scores[6 + n], values, chosen[n]);
  }
}

TEST_SUITE("unit") {
  TEST_CASE("vLLM: every mode gives the oracle's value, rank and best ids") {
    std::mt19937_64 random(35);
    for (const int32_t vocab_size : {3, 40, 2500}) {
      for (int repeat = 0; repeat < 12; ++repeat) {
        RowCase c{.row = RandomLogits(random, vocab_size),
                  .temperature = 0.7,
                  .dtype = static_cast<DType>(repeat % 3)};
        if (repeat % 2 == 1) {
          c.steps.prompt = {0, 1};
          c.steps.output = {1, 2};
          c.steps.repetition = 1.3;
          c.steps.frequency = 0.5;
          c.steps.bias = {{0, 1.5}};
          c.steps.banned = {vocab_size - 1};
        }
        if (repeat % 4 >= 2) c.truncation = {.min_p = 0.001, .top_k = 7, .top_p = 0.95};
        if (repeat % 3 == 0) {
          for (double& x : c.row) x = std::floor(x);  // ties
        }
        CheckScores(c, static_cast<TokenId>(random() % uint64_t(vocab_size)));
      }
    }
  }

  TEST_CASE("the best ids of a row with more ties than a list holds are the lowest ids") {
    RowCase c{.row = std::vector<double>(3 * kListMax, 0.5)};
    CheckScores(c, 77);
    c.row[5000] = 1.5;
    CheckScores(c, 77);
    c.truncation = {.top_k = 3};
    CheckScores(c, 1);
  }

  TEST_CASE("vLLM: rank is 1 + the number of strictly greater values") {
    const auto rank = [](const std::vector<double>& row, TokenId token) {
      const Scored scored = ScoreRow({.row = row}, {.enabled = true}, token);
      return scored.scores[0].rank;
    };
    CHECK(rank({1, 2, 3}, 1) == 2);
    CHECK(rank({4, 5, 6}, 1) == 2);
    CHECK(rank({5, 5, 5, 4}, 2) == 1);
    CHECK(rank({5, 5, 5, 4}, 3) == 4);
    CHECK(rank({0.0, -0.0, -1}, 1) == 1);
    CHECK(rank({1, -kInf, -kInf, 0}, 2) == 3);
  }

  TEST_CASE("raw scores know no mask, edit, temperature or filter; probabilities enter as ln p") {
    RowCase c{.row = {0.5, 0.25, 0.125, 0.125},
              .temperature = 0.5,
              .truncation = {.top_k = 2},
              .kind = RowKind::kProbabilities};
    c.steps.mask = {false, true, true, true};
    RowMatrix rows({.vocab_size = 4, .num_rows = 1, .rules = {.kind = c.kind}});
    rows.Set(0, c.row);
    ChainCase one(VerifyMethod::kGreedy, {}, DraftKind::kOneHot);
    const PackedSteps packed({c.steps}, 4);
    packed.Apply(&one.task);
    one.task.target_scale = ScaleOf(0.5);
    one.task.target_filters = FiltersOf(c.truncation);
    one.task.scores = {.enabled = true, .num_top = 4};
    ChainRun run(one.task, rows.view(), TensorView{}, packed.mask());
    ScalarTeam<CpuTarget::kBaseline> team;
    REQUIRE(run.By(team, KeyedCoins(1)).num_tokens == 1);
    CHECK(run.scores[0].id == 1);
    CHECK(run.scores[0].rank == 2);
    CHECK(run.scores[0].value == doctest::Approx(std::log(0.25)));
    CHECK(run.scores[1].id == 0);  // the mask forbids it, the row as it arrived likes it best
    CHECK(run.scores[4].id == 3);
    CheckScores(c, 1);
  }

  TEST_CASE("a bad row ends a score task before it; a point mass has probability 1") {
    const Scored bad = ScoreRow({.row = {NAN, 1, 2}}, {.enabled = true}, 1);
    CHECK(bad.outcome.status == OutcomeStatus::kBadTargetRow);
    CHECK(bad.outcome.num_tokens == 0);
    const Scored point = ScoreRow({.row = {1, kInf, 2}}, {.enabled = true, .num_top = 2}, 1);
    CHECK(point.scores[0].value == 0.0f);
    CHECK(point.scores[0].rank == 1);
    CHECK(point.scores[1].id == 1);
    const Scored other = ScoreRow({.row = {1, kInf, 2}}, {.enabled = true}, 0);
    CHECK(other.scores[0].value == -kInfinity);
    CHECK(other.scores[0].rank == 2);
  }

  TEST_CASE("a token that the mask of its place forbids ends a score task") {
    RowCase c{.row = {1, 2, 3}};
    c.steps.mask = {true, false, true};
    const Scored forbidden = ScoreRow(c, {.enabled = true}, 1);
    CHECK(forbidden.outcome.status == OutcomeStatus::kBadToken);
    CHECK(forbidden.outcome.num_tokens == 0);
    CHECK(ScoreRow(c, {.enabled = true}, 2).outcome.status == OutcomeStatus::kOk);
  }

  TEST_CASE("chosen ids of a point mass and of a bad row have their scores behind the best ids") {
    const TokenId chosen[] = {2, 1, 0};
    const ScoreRequest request{.enabled = true, .num_top = 2, .chosen = chosen, .num_chosen = 3};
    const std::vector<TokenScore> point = ScoreRow({.row = {1, kInf, 2}}, request, 0).scores;
    const float values[] = {-kInfinity, 0, 0, -kInfinity, 0, -kInfinity};
    const TokenId ids[] = {0, 1, kNoToken, 2, 1, 0};
    const int32_t ranks[] = {2, 1, 0, 2, 1, 2};
    for (size_t i : {0, 1, 2, 3, 4, 5}) {
      CAPTURE(i);
      CHECK(point[i].id == ids[i]);
      CHECK(point[i].rank == ranks[i]);
      if (ids[i] != kNoToken) CHECK(point[i].value == values[i]);
    }
    const std::vector<TokenScore> bad = ScoreRow({.row = {NAN, 1, 2}}, request, 1).scores;
    for (size_t i : {0, 3, 4, 5}) {
      CAPTURE(i);
      CHECK(bad[i].id == (i == 0 ? 1 : chosen[i - 3]));
      CHECK(IsNan(bad[i].value));
    }
    for (size_t i : {1, 2}) CHECK(bad[i].id == kNoToken);
  }

  TEST_CASE("vLLM: the scores of a chain's tokens are those of the tokens drawn one by one") {
    std::mt19937_64 random(48);
    for (int repeat = 0; repeat < 30; ++repeat) {
      RowMatrix rows({.vocab_size = 50, .num_rows = 4});
      for (int row = 0; row < 4; ++row) rows.Set(row, RandomLogits(random, 50));
      const KeyedCoins coins(random());
      const VerifyMethod method =
          repeat % 2 == 0 ? VerifyMethod::kGreedy : VerifyMethod::kExactMatch;
      const ScoreRequest request{.enabled = true, .mode = kModes[repeat % 5], .num_top = 3};
      std::vector<TokenId> text;
      std::vector<TokenScore> plain;
      ScalarTeam<CpuTarget::kBaseline> team;
      for (uint32_t i = 0; i < 4; ++i) {
        ChainCase one(method, {}, DraftKind::kOneHot, i);
        one.task.first_position = i;
        one.task.scores = request;
        ChainRun run(one.task, rows.view(), TensorView{});
        run.By(team, coins);
        text.push_back(run.result.tokens[0]);
        plain.insert(plain.end(), run.scores.begin(), run.scores.end());
      }
      ChainCase chain(method, {text[0], text[1], text[2]}, DraftKind::kOneHot);
      chain.task.scores = request;
      ChainRun run(chain.task, rows.view(), TensorView{});
      REQUIRE(run.By(team, coins).num_accepted == 3);
      for (size_t n = 0; n < plain.size(); ++n) {
        REQUIRE(run.scores[n].id == plain[n].id);
        REQUIRE(BitsOf(run.scores[n].value) == BitsOf(plain[n].value));
        REQUIRE(run.scores[n].rank == plain[n].rank);
      }
    }
  }
}

}  // namespace
}  // namespace specd
