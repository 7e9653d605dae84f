// VerifyChain's rules, one by one, on rows small enough to reason about.
#include "kernels/bodies/verify.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/bodies/row_law.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr double kInf = INFINITY;

// The base-2 logarithms of probabilities are logits at scale 1; powers of two are exact.
RowMatrix LogRows(const std::vector<std::vector<double>>& probabilities) {
  RowMatrix rows({.vocab_size = static_cast<int32_t>(probabilities[0].size()),
                  .num_rows = static_cast<int64_t>(probabilities.size())});
  for (size_t row = 0; row < probabilities.size(); ++row) {
    std::vector<double> logits;
    for (const double p : probabilities[row]) logits.push_back(std::log2(p));
    rows.Set(static_cast<int64_t>(row), logits);
  }
  return rows;
}

struct AnyCoins {
  uint64_t operator()(const CoinKey&) const { return kCoinEnd / 3; }
};

bool operator==(const CoinKey& a, const CoinKey& b) {
  return a.position == b.position && a.round_base == b.round_base && a.node == b.node &&
         a.purpose == b.purpose;
}

using Tokens = std::vector<TokenId>;

TEST_SUITE("unit") {
  TEST_CASE("greedy accepts while the argmax equals the draft and ends with the argmax") {
    const RowMatrix rows = LogRows({{.25, .5, .25}, {.125, .125, .75}, {.5, .25, .25}});
    const auto run = [&](const Tokens& draft) {
      ChainCase chain(VerifyMethod::kGreedy, draft, DraftKind::kOneHot);
      return RunScalar(chain.task, rows.view(), TensorView{}, AnyCoins{});
    };
    CHECK(run({}).tokens == Tokens{1});
    CHECK(run({1, 2}).tokens == Tokens{1, 2, 0});
    CHECK(run({1, 2}).outcome.num_accepted == 2);
    CHECK(run({1, 0}).tokens == Tokens{1, 2});
    CHECK(run({0, 2}).tokens == Tokens{1});
    CHECK(run({0, 2}).outcome.num_accepted == 0);
    CHECK(run({1, -1}).tokens == Tokens{1, 2});
    CHECK(run({1, -1}).outcome.invalid_drafts == 0);
    CHECK(run({1, 3}).tokens == Tokens{1, 2});
    CHECK(run({1, 3}).outcome.invalid_drafts == 1);
  }

  TEST_CASE("the accept test is strict: equal to the threshold is a rejection") {
    // p(0) = 1/4 against q(0) = 1/2: accepted below 1/2.
    const RowMatrix target = LogRows({{.25, .75}, {.5, .5}});
    const RowMatrix draft = LogRows({{.5, .5}});
    ChainCase chain(VerifyMethod::kToken, {0}, DraftKind::kSampled);
    FixedCoins coins;
    // .75 is no power of two, so the threshold is only near 1/2 there; this pair is exact:
    const RowMatrix exact = LogRows({{.25, .25, .5}, {.5, .25, .25}});
    const RowMatrix exact_draft = LogRows({{.5, .25, .25}});
    coins.accept = kCoinEnd / 2 - 1;
    CHECK(RunScalar(chain.task, exact.view(), exact_draft.view(), coins).outcome.num_accepted == 1);
    coins.accept = kCoinEnd / 2;
    CHECK(RunScalar(chain.task, exact.view(), exact_draft.view(), coins).outcome.num_accepted == 0);
    coins.accept = kCoinEnd / 2 + (uint64_t{1} << 34);
    CHECK(RunScalar(chain.task, target.view(), draft.view(), coins).tokens == Tokens{1});
  }

  TEST_CASE("an id outside the vocabulary ends the draft, is counted and never an index") {
    const RowMatrix target = LogRows({{.25, .75}, {.5, .5}});
    const RowMatrix draft = LogRows({{.75, .25}, {.5, .5}});
    for (const TokenId id : {2, 7, -2, 2147483647, -2147483647 - 1}) {
      CAPTURE(id);
      FixedCoins coins;
      coins.accept = 0;
      coins.residual = kCoinEnd - 1;
      coins.sample = 0;
      for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
        for (const DraftKind kind : {DraftKind::kSampled, DraftKind::kOneHot}) {
          ChainCase chain(method, {id, 0}, kind);
          const ChainResult result = RunScalar(chain.task, target.view(), draft.view(), coins);
          CHECK(result.tokens == Tokens{0});  // drawn from p; the residual has nothing on 0
          CHECK(result.outcome.num_drafts == 0);
          CHECK(result.outcome.invalid_drafts == 1);
          CHECK(result.outcome.empty_residuals == 0);
        }
      }
      ChainCase match(VerifyMethod::kExactMatch, {id, 0}, DraftKind::kOneHot);
      const ChainResult result = RunScalar(match.task, target.view(), draft.view(), coins);
      CHECK(result.outcome.num_accepted == 0);
      CHECK(result.outcome.invalid_drafts == 1);
    }
    // Behind a rejection they are not reached and not counted.
    FixedCoins coins;
    coins.accept = kCoinEnd - 1;
    ChainCase behind(VerifyMethod::kToken, {0, 9}, DraftKind::kSampled);
    CHECK(RunScalar(behind.task, target.view(), draft.view(), coins).outcome.invalid_drafts == 0);
  }

  TEST_CASE("-1 ends the draft: the next token is a plain sample of its position") {
    const RowMatrix target = LogRows({{.5, .5}, {.25, .75}, {.5, .5}});
    ChainCase chain(VerifyMethod::kToken, {0, -1}, DraftKind::kOneHot);
    chain.task.first_position = 10;
    std::vector<CoinKey> asked;
    const ChainResult result =
        RunScalar(chain.task, target.view(), TensorView{}, FixedCoins{0, 0, 0, &asked});
    CHECK(result.outcome.num_accepted == 1);
    CHECK(result.tokens == Tokens{0, 0});
    REQUIRE(asked.size() == 2);
    CHECK((asked[1] == SampleCoin(11)));
  }

  TEST_CASE("the keys of coins are those of the contract") {
    const RowMatrix target = LogRows({{.5, .5}, {.5, .5}, {.25, .75}});
    const RowMatrix draft = LogRows({{.5, .5}, {.5, .5}});
    ChainCase chain(VerifyMethod::kToken, {0, 1}, DraftKind::kSampled);
    chain.task.first_position = 40;
    chain.task.round_base = 33;
    std::vector<CoinKey> asked;
    RunScalar(chain.task, target.view(), draft.view(), FixedCoins{0, 0, 0, &asked});
    REQUIRE(asked.size() == 3);
    CHECK((asked[0] == CoinKey{40, 33, 1, Purpose::kAccept}));
    CHECK((asked[1] == CoinKey{41, 33, 2, Purpose::kAccept}));
    CHECK((asked[2] == CoinKey{42, 0, 0, Purpose::kSample}));

    const RowMatrix other = LogRows({{.5, .5}, {.75, .25}});
    ChainCase rejected(VerifyMethod::kToken, {0, 0}, DraftKind::kSampled);
    rejected.task.first_position = 40;
    rejected.task.round_base = 33;
    asked.clear();
    RunScalar(rejected.task, target.view(), other.view(), FixedCoins{kCoinEnd - 1, 0, 0, &asked});
    REQUIRE(asked.size() == 3);
    CHECK((asked[2] == CoinKey{41, 33, 1, Purpose::kResidual}));

    ChainCase match(VerifyMethod::kExactMatch, {0}, DraftKind::kOneHot);
    match.task.first_position = 5;
    match.task.round_base = 3;
    asked.clear();
    RunScalar(match.task, target.view(), TensorView{}, FixedCoins{0, 0, 0, &asked});
    REQUIRE(asked.size() == 2);
    CHECK((asked[0] == SampleCoin(5)));
    CHECK((asked[1] == SampleCoin(6)));
  }

  TEST_CASE("a bad row ends the sequence and what came before it stands") {
    RowMatrix target = LogRows({{1, 0}, {.5, .5}, {.5, .5}});
    RowMatrix draft = LogRows({{1, 0}, {.5, .5}});
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      target.Set(1, {NAN, 0});
      ChainCase chain(method, {0, 0}, DraftKind::kSampled);
      ChainResult result = RunScalar(chain.task, target.view(), draft.view(), AnyCoins{});
      CHECK(result.outcome.status == OutcomeStatus::kBadTargetRow);
      CHECK(result.outcome.fault == RowFault::kNan);
      CHECK(result.tokens == Tokens{0});
      CHECK(result.outcome.num_accepted == 1);
      CHECK(result.outcome.num_tokens == 1);
      target.Set(1, {-kInf, -kInf});
      result = RunScalar(chain.task, target.view(), draft.view(), AnyCoins{});
      CHECK(result.outcome.status == OutcomeStatus::kBadTargetRow);
      CHECK(result.outcome.fault == RowFault::kNoMass);
    }
    target.Set(1, {0, 0});
    draft.Set(1, {0, NAN});
    ChainCase chain(VerifyMethod::kToken, {0, 0}, DraftKind::kSampled);
    const ChainResult result = RunScalar(chain.task, target.view(), draft.view(), AnyCoins{});
    CHECK(result.outcome.status == OutcomeStatus::kBadDraftRow);
    CHECK(result.outcome.fault == RowFault::kNan);
    CHECK(result.tokens == Tokens{0});
    // The same draft row does not matter to methods that need no q.
    ChainCase match(VerifyMethod::kExactMatch, {0, 0}, DraftKind::kSampled);
    CHECK(RunScalar(match.task, target.view(), draft.view(), AnyCoins{}).outcome.status ==
          OutcomeStatus::kOk);
  }

  TEST_CASE("+inf in p decides alone") {
    RowMatrix target = LogRows({{.5, .5, 0}, {.5, .25, .25}});
    target.Set(0, {0, 5, kInf});
    const RowMatrix draft = LogRows({{.25, .25, .5}, {1, 0, 0}});
    FixedCoins coins;
    coins.accept = kCoinEnd - 1;
    ChainCase right(VerifyMethod::kToken, {2}, DraftKind::kSampled);
    const TaskOutcome accepted = RunScalar(right.task, target.view(), draft.view(), coins).outcome;
    CHECK(accepted.num_accepted == 1);
    CHECK(accepted.point_masses == 1);  // the bonus comes from an ordinary row
    coins.accept = 0;
    for (const DraftKind kind : {DraftKind::kSampled, DraftKind::kOneHot}) {
      ChainCase wrong(VerifyMethod::kToken, {1}, kind);
      const ChainResult result = RunScalar(wrong.task, target.view(), draft.view(), coins);
      CHECK(result.outcome.num_accepted == 0);
      CHECK(result.tokens == Tokens{2});
      CHECK(result.outcome.point_masses == 1);
    }
    ChainCase greedy(VerifyMethod::kGreedy, {2}, DraftKind::kOneHot);
    CHECK(RunScalar(greedy.task, target.view(), draft.view(), coins).outcome.point_masses == 1);
    PlaceEdits forced[2];
    forced[0].forced = 2;  // chosen before anybody looks at the row
    greedy.task.places = forced;
    CHECK(RunScalar(greedy.task, target.view(), draft.view(), coins).outcome.point_masses == 0);
  }

  TEST_CASE("rows are named by index: shared, repeated and out of order") {
    const RowMatrix rows = LogRows({{.25, .5, .25}, {.125, .125, .75}, {.5, .25, .25}});
    ChainCase chain(VerifyMethod::kGreedy, {0, 2, 2}, DraftKind::kOneHot);
    const uint32_t order[] = {2, 1, 1, 0};
    chain.task.draft.target_rows = order;
    CHECK(RunScalar(chain.task, rows.view(), TensorView{}, AnyCoins{}).tokens ==
          Tokens{0, 2, 2, 1});
  }

  TEST_CASE("the last token goes to the task's slot, and nothing where there is no token") {
    RowMatrix rows = LogRows({{.25, .5, .25}, {.125, .125, .75}, {.5, .25, .25}});
    ChainCase chain(VerifyMethod::kGreedy, {1, 2}, DraftKind::kOneHot);
    chain.task.slot = 3;
    const auto next_tokens = [&] {
      ChainRun run(chain.task, rows.view(), TensorView{});
      std::vector<Tokens> arrays(2, Tokens(6, -9));
      const SlotOutput list[] = {{arrays[0].data(), MemorySpace::kHost},
                                 {arrays[1].data(), MemorySpace::kHost}};
      run.batch.slot_outputs = list;
      run.batch.num_slot_outputs = 2;
      ScalarTeam<CpuTarget::kBaseline> team;
      run.By(team, AnyCoins{});
      CHECK(arrays[0] == arrays[1]);
      return arrays[0];
    };
    CHECK(next_tokens() == Tokens{-9, -9, -9, 0, -9, -9});
    rows.Set(2, {NAN, 0, 0});  // both drafts stand
    CHECK(next_tokens() == Tokens{-9, -9, -9, 2, -9, -9});
    rows.Set(0, {NAN, 0, 0});
    CHECK(next_tokens() == Tokens(6, -9));
    chain.task.kind = TaskKind::kScore;
    rows.Set(0, {0, 0, 0});
    CHECK(next_tokens() == Tokens(6, -9));
  }

  TEST_CASE("what was confirmed and where that ends is left by slot, and by nobody else") {
    RowMatrix rows = LogRows({{.25, .5, .25}, {.125, .125, .75}, {.5, .25, .25}});
    ChainCase chain(VerifyMethod::kGreedy, {1, 2}, DraftKind::kOneHot);
    chain.task.slot = 1;
    chain.task.first_position = 40;
    std::vector<uint32_t> kept;
    Tokens recent;
    const auto leave = [&] {
      ChainRun run(chain.task, rows.view(), TensorView{});
      kept.assign(3, 99);
      recent.assign(3 * 4, -9);
      run.batch.slots = {kept.data(), recent.data(), 4};
      ScalarTeam<CpuTarget::kBaseline> team;
      run.By(team, AnyCoins{});
    };
    leave();  // positions 40, 41 and 42
    CHECK(kept == std::vector<uint32_t>{99, 43, 99});
    CHECK(recent == Tokens{-9, -9, -9, -9, 1, 2, 0, -9, -9, -9, -9, -9});
    chain.task.first_position = 43;  // the second draft token is rejected
    rows.Set(1, {0, 5, 0});
    leave();
    CHECK(kept == std::vector<uint32_t>{99, 45, 99});
    CHECK(recent == Tokens{-9, -9, -9, -9, 1, -9, -9, 1, -9, -9, -9, -9});
    rows.Set(1, {NAN, 0, 0});
    leave();
    CHECK(kept == std::vector<uint32_t>{99, 44, 99});
    CHECK(recent == Tokens{-9, -9, -9, -9, -9, -9, -9, 1, -9, -9, -9, -9});
    rows.Set(0, {NAN, 0, 0});
    leave();
    CHECK(kept == std::vector<uint32_t>{99, 43, 99});
    CHECK(recent == Tokens(12, -9));
    for (const TaskKind kind : {TaskKind::kScore, TaskKind::kSampleDraft}) {
      chain.task.kind = kind;
      rows.Set(0, {0, 0, 0});
      leave();
      CHECK(kept == std::vector<uint32_t>(3, 99));
      CHECK(recent == Tokens(12, -9));
    }
  }

  TEST_CASE("an outcome says how many tokens were drafted, however it ended") {
    RowMatrix rows = LogRows({{.5, .5}, {.5, .5}, {.5, .5}, {.5, .5}, {.5, .5}});
    for (const bool is_bad : {false, true}) {
      if (is_bad) rows.Set(0, {NAN, 0});
      for (const VerifyMethod method : {VerifyMethod::kGreedy, VerifyMethod::kExactMatch,
                                        VerifyMethod::kToken, VerifyMethod::kBlock}) {
        for (const DraftKind kind : {DraftKind::kOneHot, DraftKind::kSampled}) {
          for (int32_t end = 0; end <= 4; ++end) {
            for (const TokenId last : {kNoToken, 7}) {  // 7 is outside the vocabulary
              Tokens draft = {1, 1, 0, 1};
              if (end < 4) draft[static_cast<size_t>(end)] = last;
              const ChainCase chain(method, draft, kind);
              const ChainResult result =
                  RunScalar(chain.task, rows.view(), rows.view(), AnyCoins{});
              CHECK((result.outcome.status == OutcomeStatus::kBadTargetRow) == is_bad);
              CHECK(result.outcome.num_drafts == end);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace specd
