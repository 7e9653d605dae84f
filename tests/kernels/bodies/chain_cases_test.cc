// The cases of the peers' tests that concern chains. A name begins with the peer that has the case:
//   vLLM          <tests/v1/sample/test_rejection_sampler.py> and, for block and -1,
//                 <tests/v1/spec_decode/test_rejection_sampler_utils.py>
//   SGLang        the issue that the name gives
//   FlashInfer    <tests/utils/test_sampling.py>
//   TensorRT-LLM  its tests of accepting by logits
//
// Other files have the other cases. row_cases_test.cc has one row, and exact_test.cc enumerates.
// speculation_law_test.cc has chi-square. invariance_test.cc has batches, and speculation on and
// off. score_test.cc has logprobs, and far_rows_test.cc rows beyond 2^32 bytes. tests/speculative
// has finish rules, grammar and parameters. tree_law_test.cc and tree_rounds_test.cc have trees.
// Lossy methods are not built, and the bookkeeping of Python calls does not exist here.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/kernels/bodies/packed_steps.h"
#include "tests/kernels/bodies/row_law.h"
#include "tests/kernels/bodies/run_chain.h"

namespace specd {
namespace {

using Tokens = std::vector<TokenId>;
constexpr VerifyMethod kMethods[] = {VerifyMethod::kGreedy, VerifyMethod::kExactMatch,
                                     VerifyMethod::kToken, VerifyMethod::kBlock};

uint64_t CoinOf(double u) { return static_cast<uint64_t>(u * 0x1p53); }

RowMatrix RowsOf(const std::vector<std::vector<double>>& values, DType dtype = DType::kFloat32) {
  RowMatrix rows({.dtype = dtype,
                  .vocab_size = static_cast<int32_t>(values[0].size()),
                  .num_rows = static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) rows.Set(static_cast<int64_t>(i), values[i]);
  return rows;
}

RowMatrix RowsOfProbabilities(const std::vector<std::vector<double>>& p) {
  std::vector<std::vector<double>> logits;
  for (const std::vector<double>& row : p) logits.push_back(oracle::LogOf(row));
  return RowsOf(logits);
}

// vLLM's rows: -100 everywhere, 100 at the wanted id, 99 at id 15 as the runner-up.
RowMatrix PeakedRows(const Tokens& wanted) {
  std::vector<std::vector<double>> rows;
  for (const TokenId id : wanted) {
    std::vector<double> row(100, -100.0);
    row[15] = 99;
    row[id] = 100;
    rows.push_back(row);
  }
  return RowsOf(rows);
}

// Everything is sharp enough (1/T = 40) that any coin gives the peak.
Tokens RunPeaked(VerifyMethod method, const Tokens& draft, const Tokens& wanted,
                 const std::vector<oracle::Steps>& steps = {}) {
  const RowMatrix rows = PeakedRows(wanted);
  ChainCase chain(method, draft, DraftKind::kOneHot);
  chain.task.target_scale = 40;
  const PackedSteps packed(steps.empty() ? std::vector<oracle::Steps>(wanted.size()) : steps, 100);
  packed.Apply(&chain.task);
  return RunScalar(chain.task, rows.view(), TensorView{}, KeyedCoins(7), packed.mask()).tokens;
}

TEST_SUITE("unit") {
  TEST_CASE("vLLM: matches, early mismatch, single and empty drafts, all methods") {
    for (const VerifyMethod method : kMethods) {
      CAPTURE(static_cast<int>(method));
      CHECK(RunPeaked(method, {1, 2, 3}, {1, 2, 3, 4}) == Tokens{1, 2, 3, 4});
      CHECK(RunPeaked(method, {1, 2, 3}, {1, 5, 3, 4}) == Tokens{1, 5});
      CHECK(RunPeaked(method, {1}, {1, 2}) == Tokens{1, 2});
      CHECK(RunPeaked(method, {}, {5}) == Tokens{5});
      CHECK(RunPeaked(method, {1}, {2, 3}) == Tokens{2});
    }
  }

  TEST_CASE("vLLM: bad words that are not adjacent, greedy and sampled") {
    const std::vector<oracle::Steps> bans(4, {.banned = {2}});
    for (const VerifyMethod method : kMethods) {
      CHECK(RunPeaked(method, {1, 2, 3}, {1, 2, 3, 4}, bans) == Tokens{1, 15});
      CHECK(RunPeaked(method, {1, 15, 3}, {1, 2, 3, 4}, bans) == Tokens{1, 15, 3, 4});
      CHECK(RunPeaked(method, {1, 2, 3}, {1, 2, 3, 4}) == Tokens{1, 2, 3, 4});
      // A word of two tokens is banned only after its first token, which may lie in the draft.
      std::vector<oracle::Steps> at_second(4);
      at_second[1].banned = {2};
      CHECK(RunPeaked(method, {1, 2, 3}, {1, 2, 3, 4}, at_second) == Tokens{1, 15});
    }
  }

  TEST_CASE("vLLM: the recovered token is the oracle's at the same coin") {
    std::mt19937_64 random(11);
    for (const int32_t vocab_size : {100, 8192, 10000}) {
      for (const bool has_q : {true, false}) {
        const std::vector<double> p_row = RandomLogits(random, vocab_size);
        const std::vector<double> q_row = RandomLogits(random, vocab_size);
        RowMatrix p_rows({.vocab_size = vocab_size, .num_rows = 2});
        RowMatrix q_rows({.vocab_size = vocab_size, .num_rows = 1});
        const auto p = *oracle::Softmax(p_rows.Set(0, p_row), 1 / std::log(2.0));
        const auto q_full = *oracle::Softmax(q_rows.Set(0, q_row), 1 / std::log(2.0));
        const TokenId x = *oracle::Argmax(q_row);
        const auto q = has_q ? q_full : oracle::OneHot(x, size_t(vocab_size));
        const oracle::Probabilities law = *oracle::Residual(p, q);
        const std::vector<double> ends = oracle::IntervalEnds(law);
        for (int repeat = 0; repeat < 20; ++repeat) {
          const double u = double(random() >> 11) * 0x1p-53;
          const auto y = std::upper_bound(ends.begin(), ends.end(), u) - ends.begin();
          if (std::fabs(ends[y] - u) < 1e-5 || std::fabs(ends[y] - law[y] - u) < 1e-5) continue;
          for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
            ChainCase chain(method, {x}, has_q ? DraftKind::kSampled : DraftKind::kOneHot);
            const FixedCoins coins{.accept = kCoinEnd - 1, .residual = CoinOf(u)};
            const ChainResult result = RunScalar(chain.task, p_rows.view(), q_rows.view(), coins);
            if (result.outcome.num_accepted == 1) continue;  // p(x) >= q(x)
            REQUIRE(result.tokens == Tokens{static_cast<TokenId>(y)});
          }
        }
      }
    }
  }

  TEST_CASE("q(x)=0, p>0 accepts; p=q=0 rejects; p=0 rejects even with coin 0") {
    const RowMatrix target = RowsOfProbabilities({{.5, .5, 0, 0}, {1, 0, 0, 0}});
    const RowMatrix drafter = RowsOfProbabilities({{0, .5, .5, 0}, {1, 0, 0, 0}});
    const auto accepted = [&](VerifyMethod method, TokenId x, uint64_t coin) {
      ChainCase chain(method, {x}, DraftKind::kSampled);
      return RunScalar(chain.task, target.view(), drafter.view(), FixedCoins{coin, 0, 0})
          .outcome.num_accepted;
    };
    for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
      CHECK(accepted(method, 0, kCoinEnd - 1) == 1);
      CHECK(accepted(method, 1, kCoinEnd - 1) == 1);
      CHECK(accepted(method, 2, 0) == 0);
      CHECK(accepted(method, 3, 0) == 0);
    }
  }

  TEST_CASE("an empty residual falls back to p and is counted") {
    // x was proposed though q(x) = 0 and p(x) = 0, and otherwise p = q.
    const RowMatrix rows = RowsOfProbabilities({{.5, .5, 0}, {1, 0, 0}});
    for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
      ChainCase chain(method, {2}, DraftKind::kSampled);
      const FixedCoins coins{0, kCoinEnd / 4 * 3, 0};
      const ChainResult result = RunScalar(chain.task, rows.view(), rows.view(), coins);
      CHECK(result.outcome.empty_residuals == 1);
      CHECK(result.tokens == Tokens{1});
    }
    // A one-hot draft that holds all of p is never rejected, so its residual is never needed.
    const RowMatrix point = RowsOfProbabilities({{0, 1, 0}, {1, 0, 0}});
    ChainCase chain(VerifyMethod::kBlock, {1}, DraftKind::kOneHot);
    CHECK(RunScalar(chain.task, point.view(), TensorView{}, FixedCoins{kCoinEnd - 1, 0, 0})
              .outcome.num_accepted == 1);
  }

  TEST_CASE("a masked draft is rejected and no masked id is emitted") {
    std::mt19937_64 random(47);
    for (int repeat = 0; repeat < 400; ++repeat) {
      std::vector<std::vector<double>> logits;
      std::vector<oracle::Steps> steps;
      for (int i = 0; i < 4; ++i) {
        logits.push_back(RandomLogits(random, 40, 1.0));
        oracle::Steps step;
        for (int id = 0; id < 40; ++id) step.mask.push_back(random() % 2 == 0);
        step.mask[random() % 40] = true;
        steps.push_back(step);
      }
      const RowMatrix rows = RowsOf(logits);
      Tokens draft;
      for (int i = 0; i < 3; ++i) draft.push_back(static_cast<TokenId>(random() % 40));
      const PackedSteps packed(steps, 40);
      ChainCase chain(kMethods[repeat % 4], draft,
                      repeat % 8 < 4 ? DraftKind::kSampled : DraftKind::kOneHot);
      packed.Apply(&chain.task);
      const ChainResult result =
          RunScalar(chain.task, rows.view(), rows.view(), KeyedCoins(random()), packed.mask());
      REQUIRE(result.outcome.status == OutcomeStatus::kOk);
      for (size_t i = 0; i < result.tokens.size(); ++i) REQUIRE(steps[i].mask[result.tokens[i]]);
      const auto stop = size_t(result.outcome.num_accepted);
      const bool masked = stop < draft.size() && !steps[stop].mask[draft[stop]];
      REQUIRE(result.outcome.invalid_drafts == (masked ? 1 : 0));
    }
  }

  TEST_CASE("block: a token with p = 0 is not carried over by a later one with q = 0 < p") {
    // Bug: the later token set P back to 1, and the forbidden one was accepted with it.
    const RowMatrix target = RowsOfProbabilities({{.5, 0, .5}, {.5, .5, 0}, {1, 0, 0}});
    const RowMatrix drafter = RowsOfProbabilities({{.5, .5, 0}, {.5, 0, .5}});
    ChainCase chain(VerifyMethod::kBlock, {1, 1}, DraftKind::kSampled);
    const ChainResult result = RunScalar(chain.task, target.view(), drafter.view(), FixedCoins{});
    CHECK(result.outcome.status == OutcomeStatus::kOk);
    CHECK(result.tokens == Tokens{2});
  }

  TEST_CASE(
      "CONTRACT 6: block: a bad row cuts the draft before it, and is judged only if reached") {
    // p = q up to the bad row: everything before it is accepted, so it is reached.
    RowMatrix rows = RowsOfProbabilities({{.5, .5}, {.5, .5}, {.5, .5}, {1, 0}});
    rows.Set(2, {NAN, 0});
    ChainCase chain(VerifyMethod::kBlock, {0, 1, 0}, DraftKind::kSampled);
    const ChainResult reached =
        RunScalar(chain.task, rows.view(), rows.view(), FixedCoins{kCoinEnd - 1, 0, 0});
    CHECK(reached.outcome.status == OutcomeStatus::kBadTargetRow);
    CHECK(reached.outcome.fault == RowFault::kNan);
    CHECK(reached.tokens == Tokens{0, 1});
    // A token with p = 0 before it: the walk stops there and the bad row does not matter.
    RowMatrix target = RowsOfProbabilities({{.5, .5}, {1, 0}, {.5, .5}, {1, 0}});
    target.Set(2, {NAN, NAN});
    const RowMatrix drafter = RowsOfProbabilities({{.5, .5}, {.5, .5}, {.5, .5}});
    const ChainResult stopped =
        RunScalar(chain.task, target.view(), drafter.view(), FixedCoins{kCoinEnd - 1, 0, 0});
    CHECK(stopped.outcome.status == OutcomeStatus::kOk);
    CHECK(stopped.tokens == Tokens{0, 0});
    // A bad draft row cuts in the same way.
    RowMatrix bad_drafter = RowsOfProbabilities({{.5, .5}, {.5, .5}, {.5, .5}});
    bad_drafter.Set(1, {NAN, NAN});
    const RowMatrix good = RowsOfProbabilities({{.5, .5}, {.5, .5}, {.5, .5}, {1, 0}});
    const ChainResult cut =
        RunScalar(chain.task, good.view(), bad_drafter.view(), FixedCoins{kCoinEnd - 1, 0, 0});
    CHECK(cut.outcome.status == OutcomeStatus::kBadDraftRow);
    CHECK(cut.outcome.fault == RowFault::kNan);
    CHECK(cut.tokens == Tokens{0});
  }
}

}  // namespace
}  // namespace specd
