// The records of decisions: they change no answer, and say the numbers that the answer came from.
#include "kernels/core/decision.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/bodies/block_round.h"
#include "tests/kernels/bodies/packed_steps.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/round_case.h"
#include "tools/oracle/oracle.h"

namespace specd {
namespace {

constexpr uint64_t kCoins = uint64_t{1} << kCoinBits;

RowMatrix RowsOf(const std::vector<oracle::Probabilities>& p) {
  RowMatrix rows({.dtype = DType::kFloat32,
                  .vocab_size = static_cast<int32_t>(p[0].size()),
                  .num_rows = static_cast<int64_t>(p.size())});
  for (size_t i = 0; i < p.size(); ++i) rows.Set(static_cast<int64_t>(i), oracle::LogOf(p[i]));
  return rows;
}

// One task by the scalar team, with its decisions.
struct RecordedRun {
  RecordedRun(const Task& task, const TensorView& target, const TensorView& draft,
              const KeyedCoins& coins)
      : decisions(static_cast<size_t>(task.draft.num_nodes) + 1) {
    ChainRun run(task, target, draft);
    run.batch.decisions = decisions.data();
    run.batch.decisions_stride = static_cast<int32_t>(decisions.size());
    ScalarTeam<CpuTarget::kBaseline> team;
    result = run.Finish(run.By(team, coins));
  }

  std::vector<PlaceDecision> decisions;
  ChainResult result;
};

double Share(float weight, double mass) { return static_cast<double>(weight) / mass; }

const std::vector<oracle::Probabilities> kTarget = {
    {0.5, 0.25, 0.15, 0.1}, {0.1, 0.6, 0.2, 0.1}, {0.3, 0.3, 0.2, 0.2}, {0.25, 0.25, 0.4, 0.1}};
const std::vector<oracle::Probabilities> kDraft = {
    {0.2, 0.3, 0.4, 0.1}, {0.4, 0.3, 0.2, 0.1}, {0.1, 0.1, 0.1, 0.7}};
const std::vector<TokenId> kTokens = {2, 0, 3};

// The key of the draw that a decision records.
CoinKey DrawKey(const Task& task, int32_t place, const PlaceDecision& decision) {
  const uint32_t position = task.first_position + static_cast<uint32_t>(place);
  if (decision.draw_purpose == Purpose::kSample) return SampleCoin(position);
  return {position, task.round_base, static_cast<uint32_t>(place), Purpose::kResidual};
}

std::vector<PlaceDecision> RunWithRecords(Backend* backend, RoundBatch batch, int32_t num_places) {
  std::vector<PlaceDecision> decisions(static_cast<size_t>(batch.num_tasks * num_places));
  batch.decisions = decisions.data();
  batch.decisions_stride = num_places;
  REQUIRE(backend->Run(batch).ok());
  return decisions;
}

TEST_SUITE("unit") {
  TEST_CASE("decisions of method token: p, q, coins and verdicts are those of the paper") {
    const RowMatrix target = RowsOf(kTarget);
    const RowMatrix draft = RowsOf(kDraft);
    int num_rejected = 0;
    int num_accepted = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      ChainCase chain(VerifyMethod::kToken, kTokens, DraftKind::kSampled);
      chain.task.target_scale = chain.task.draft_scale = ScaleOf(1);
      const KeyedCoins coins(seed);
      const RecordedRun run(chain.task, target.view(), draft.view(), coins);
      const auto num_tokens = static_cast<size_t>(run.result.outcome.num_tokens);
      for (size_t i = 0; i < run.decisions.size(); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        const PlaceDecision& decision = run.decisions[i];
        REQUIRE(decision.judged == (i < num_tokens));
        if (!decision.judged) continue;
        CHECK(decision.token == run.result.tokens[i]);
        if (i == kTokens.size()) continue;
        const double p = kTarget[i][static_cast<size_t>(kTokens[i])];
        const double q = kDraft[i][static_cast<size_t>(kTokens[i])];
        CHECK(Share(decision.p_weight, decision.p_mass) == doctest::Approx(p).epsilon(1e-6));
        CHECK(Share(decision.q_weight, decision.q_mass) == doctest::Approx(q).epsilon(1e-6));
        const auto node = static_cast<uint32_t>(i);
        CHECK(decision.accept_coin == coins({node, 0, node + 1, Purpose::kAccept}));
        CHECK(decision.stands == (CoinToDouble(decision.accept_coin) * q < p));
        (decision.stands ? num_accepted : num_rejected)++;
        if (decision.stands) continue;
        double residual = 0;
        for (size_t v = 0; v < 4; ++v) residual += std::max(kTarget[i][v] - kDraft[i][v], 0.0);
        CHECK(decision.residual_mass == doctest::Approx(residual).epsilon(1e-6));
        CHECK(decision.draw_coin == coins({node, 0, node, Purpose::kResidual}));
        CHECK(Share(decision.token_weight, decision.p_mass) ==
              doctest::Approx(kTarget[i][static_cast<size_t>(decision.token)]).epsilon(1e-6));
      }
    }
    CHECK(num_rejected > 50);
    CHECK(num_accepted > 50);
  }

  TEST_CASE("decisions of method target_only: the TREE coin, the sum of p and what is left of p") {
    // CONTRACT §5: the children of the root have p = .5, .5 again, which counts once, and .15.
    const RowMatrix target = RowsOf(kTarget);
    const std::vector<int32_t> parents(3, kRoot);
    int num_rejected = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      ChainCase tree(VerifyMethod::kTargetOnly, {0, 0, 2}, DraftKind::kOneHot);
      tree.task.draft.parents = parents.data();
      tree.task.target_scale = ScaleOf(1);
      const KeyedCoins coins(seed);
      const RecordedRun run(tree.task, target.view(), TensorView{}, coins);
      const uint64_t coin = coins({0, 0, 0, Purpose::kTree});
      const double u = CoinToDouble(coin);
      const PlaceDecision& decision = run.decisions[0];
      CHECK(decision.accept_coin == coin);
      CHECK(decision.bound == doctest::Approx(u < .5 ? .5 : .65).epsilon(1e-6));
      CHECK(decision.draft == (u < .5 ? 0 : 2));
      CHECK(Share(decision.p_weight, decision.p_mass) ==
            doctest::Approx(u < .5 ? .5 : .15).epsilon(1e-6));
      CHECK(decision.q_mass == 0);
      CHECK(decision.stands == (u < .65));
      if (decision.stands) continue;
      ++num_rejected;
      CHECK(decision.residual_mass == doctest::Approx(.35).epsilon(1e-6));
      CHECK(decision.draw_coin == coins({0, 0, 0, Purpose::kResidual}));
    }
    CHECK(num_rejected > 40);
  }

  TEST_CASE("an empty residual is recorded as mass 0: p was sampled by the residual coin") {
    // The draft token was proposed though q = 0 and p = 0, and otherwise p = q.
    const RowMatrix rows = RowsOf({{0.5, 0.5, 0, 0}, {0.5, 0.5, 0, 0}});
    const KeyedCoins coins(3);
    for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
      CAPTURE(static_cast<int>(method));
      ChainCase chain(method, {2}, DraftKind::kSampled);
      const RecordedRun run(chain.task, rows.view(), rows.view(), coins);
      REQUIRE(run.result.outcome.empty_residuals == 1);
      const PlaceDecision& decision = run.decisions[0];
      CHECK_FALSE(decision.stands);
      CHECK(decision.residual_mass == 0);
      CHECK(decision.draw_purpose == Purpose::kResidual);
      CHECK(decision.draw_coin == coins({0, 0, 0, Purpose::kResidual}));
    }
  }

  TEST_CASE("the step that made p of a draft token 0 is recorded") {
    // A wrong order of the looks would name a later step: every case sets one step, and the row
    // would leave the token its mass without it.
    const RowMatrix rows = RowsOf({{0.5, 0.25, 0.15, 0.1}, {0.5, 0.25, 0.15, 0.1}});
    const RowMatrix without = RowsOf({{0.5, 0.35, 0.15, 0}, {0.5, 0.35, 0.15, 0}});
    constexpr TokenId kToken = 3;
    const uint32_t mask = 0x7;
    struct Case {
      ZeroStep step;
      TokenEdit edit = {};  // id 0: none
      PlaceEdits place = {};
      bool is_allowed = true;
      Filters filters = {};
      bool has_row = true;
    };
    const TokenEdit end{.id = kToken, .flags = kEditEnd};
    const uint64_t half = kTopPOff / 2;
    const std::vector<Case> cases = {
        {.step = ZeroStep::kNone},
        {.step = ZeroStep::kForced, .place = {.forced = 1}},
        {.step = ZeroStep::kGrammar, .place = {.grammar_mask = &mask}},
        {.step = ZeroStep::kAllowed, .is_allowed = false},
        {.step = ZeroStep::kDisallowed, .edit = {.id = kToken, .flags = kEditDisallowed}},
        {.step = ZeroStep::kMinTokens, .edit = end, .place = {.below_min_tokens = true}},
        {.step = ZeroStep::kNone, .edit = end},
        {.step = ZeroStep::kBanned, .edit = {.id = kToken, .flags = kEditBanned}},
        {.step = ZeroStep::kRow, .edit = {.id = kToken, .bias = -kInfinity}},
        {.step = ZeroStep::kRow, .has_row = false},
        {.step = ZeroStep::kMinP, .filters = {.min_p = std::log2(0.3f)}},
        {.step = ZeroStep::kTopK, .filters = {.top_k = 2}},
        {.step = ZeroStep::kTopP, .filters = {.top_p = half}},
        {.step = ZeroStep::kTopKOrTopP, .filters = {.top_k = 2, .top_p = half}},
        {.step = ZeroStep::kMinP, .filters = {.min_p = std::log2(0.3f), .top_k = 1}}};
    for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock,
                                      VerifyMethod::kExactMatch, VerifyMethod::kTypical}) {
      for (size_t i = 0; i < cases.size(); ++i) {
        CAPTURE(static_cast<int>(method));
        CAPTURE(i);
        const Case& c = cases[i];
        ChainCase chain(method, {kToken}, DraftKind::kOneHot);
        Task& task = chain.task;
        const std::vector<PlaceEdits> places(2, c.place);
        task.places = places.data();
        task.target_scale = ScaleOf(1);
        task.target_filters = c.filters;
        task.edits.edits = &c.edit;
        task.edits.num_edits = c.edit.id == 0 ? 0 : 1;
        if (!c.is_allowed) task.edits.allowed = &mask;
        const RecordedRun run(task, (c.has_row ? rows : without).view(), TensorView{},
                              KeyedCoins(i));
        const PlaceDecision& decision = run.decisions[0];
        // A lossy rule is asked only if the place has another token.
        if (method == VerifyMethod::kTypical && decision.bound < 0) continue;
        CHECK(decision.zero_step == c.step);
        CHECK((decision.p_weight == 0) == (c.step != ZeroStep::kNone));
      }
    }
  }

  TEST_CASE("every coin draws a point mass") {
    RowMatrix rows({.vocab_size = 4, .num_rows = 1});
    rows.Set(0, {0, INFINITY, 0, 0});
    const KeyedCoins coins(4);
    for (const VerifyMethod method : {VerifyMethod::kExactMatch, VerifyMethod::kBlock}) {
      CAPTURE(static_cast<int>(method));
      ChainCase chain(method, {}, DraftKind::kOneHot);
      const RecordedRun run(chain.task, rows.view(), TensorView{}, coins);
      const PlaceDecision& decision = run.decisions[0];
      CHECK(decision.token == 1);
      CHECK(decision.draw_coin == coins(SampleCoin(0)));
      CHECK(decision.draw_interval.low == 0);
      CHECK(decision.draw_interval.high == kCoins);
      CHECK(decision.residual_mass < 0);
      CHECK(Share(decision.token_weight, decision.p_mass) == 1);
    }
  }

  TEST_CASE("decisions of method block: prefixes and bounds are those of the paper") {
    const RowMatrix target = RowsOf(kTarget);
    const RowMatrix draft = RowsOf(kDraft);
    const oracle::Block block = oracle::BlockOf(kTarget, kDraft, kTokens);
    const size_t last = kTokens.size() - 1;
    int num_bounds = 0;
    int num_left_out = 0;
    for (uint64_t seed = 0; seed < 2000; ++seed) {
      CAPTURE(seed);
      ChainCase chain(VerifyMethod::kBlock, kTokens, DraftKind::kSampled);
      Task& task = chain.task;
      task.target_scale = task.draft_scale = ScaleOf(1);
      task.seed = seed;
      const KeyedCoins coins(seed);
      const RecordedRun run(task, target.view(), draft.view(), coins);
      CHECK(run.decisions[0].prefix == 1);
      bool goes_on = true;
      for (size_t i = last + 1; i-- > 0;) {
        CAPTURE(i);
        const PlaceDecision& decision = run.decisions[i];
        CHECK(decision.prefix == doctest::Approx(block.path[i]).epsilon(1e-6));
        if (!goes_on) {
          CHECK(decision.accept_coin == kNoCoin);
          CHECK(decision.bound == -1);
          continue;
        }
        const auto node = static_cast<uint32_t>(i);
        const uint64_t coin = coins({node, 0, node + 1, Purpose::kAccept});
        CHECK(decision.accept_coin == coin);
        goes_on = CoinToDouble(coin) >= block.accept[i + 1];
        if (i < last && !RecordsBounds(seed, 0)) {
          CHECK(decision.bound == -1);
          ++num_left_out;
          continue;
        }
        CHECK(decision.bound == doctest::Approx(block.accept[i + 1]).epsilon(1e-6));
        num_bounds += i < last ? 1 : 0;
      }
      CHECK(run.decisions[static_cast<size_t>(run.result.outcome.num_accepted)].judged);
    }
    CHECK(num_bounds > 60);
    CHECK(num_left_out > 30 * num_bounds / 2);
  }

  TEST_CASE("decisions of method block: one-hot drafts have each bound that the walk meets") {
    const RowMatrix target = RowsOf(kTarget);
    // q is 1 at the draft token.
    std::vector<oracle::Probabilities> points(3, oracle::Probabilities(4, 0.0));
    for (size_t i = 0; i < points.size(); ++i) points[i][static_cast<size_t>(kTokens[i])] = 1;
    const oracle::Block block = oracle::BlockOf(kTarget, points, kTokens);
    int num_bounds = 0;
    for (uint64_t seed = 0; seed < 100; ++seed) {
      CAPTURE(seed);
      ChainCase chain(VerifyMethod::kBlock, kTokens, DraftKind::kOneHot);
      chain.task.target_scale = ScaleOf(1);
      chain.task.seed = seed;
      const KeyedCoins coins(seed);
      const RecordedRun run(chain.task, target.view(), {}, coins);
      for (size_t i = 0; i < kTokens.size(); ++i) {
        const PlaceDecision& decision = run.decisions[i];
        CHECK((decision.bound < 0) == (decision.accept_coin == kNoCoin));
        if (decision.bound < 0) continue;
        CHECK(decision.bound == doctest::Approx(block.accept[i + 1]).epsilon(1e-6));
        ++num_bounds;
      }
    }
    CHECK(num_bounds > 150);
  }

  TEST_CASE("block: one task in 32 records its bounds, whatever its coins are") {
    int num_tasks = 0;
    int num_chosen = 0;
    double sum = 0;
    for (uint64_t seed = 0; seed < 2000; ++seed) {
      // A sequence whose rounds keep as many tokens each: 1 to 8.
      const uint32_t step = 1 + seed % 8;
      const KeyedCoins coins(seed);
      for (uint32_t base = 0; base < 64 * step; base += step) {
        ++num_tasks;
        if (!RecordsBounds(seed, base)) continue;
        ++num_chosen;
        sum += CoinToDouble(coins({base, base, 1, Purpose::kAccept})) - .5;
      }
    }
    // 4 sigma.
    const double expected = num_tasks / 32.0;
    CHECK(std::abs(num_chosen - expected) < 4 * std::sqrt(expected));
    CHECK(std::abs(sum) < 4 * std::sqrt(expected / 12));
  }

  // Where a record has the bounds, a bound spares none of their passes.
  TEST_CASE("block: a bound spares passes and changes no answer") {
    std::mt19937_64 random(21);
    for (const int32_t vocab_size : {12, 2 * kTileSize + 40}) {
      for (const Filters& filters : {Filters{}, Filters{.top_k = 7, .top_p = kTopPOff / 10 * 9}}) {
        for (const bool by_side : {false, true}) {
          CAPTURE(vocab_size);
          CAPTURE(filters.top_k);
          CAPTURE(by_side);
          const int32_t num_rounds = vocab_size == 12 ? 1000 : 50;
          int32_t num_syncs = 0;
          for (int32_t i = 0; i < num_rounds; ++i) {
            CAPTURE(i);
            BlockRound round(random, vocab_size, filters, by_side);
            const KeyedCoins coins(random());
            num_syncs += round.NumSyncsOfRecord(coins, /*has_bounds=*/true);
            CHECK(round.NumSyncsOfRecord(coins, /*has_bounds=*/false) == 0);
          }
          // A pass is between two of them.
          CHECK(num_syncs > 2 * num_rounds / 5);
        }
      }
    }
  }

  TEST_CASE(
      "the interval of a draw holds its coin; coins at its ends draw it, and their neighbours "
      "another id") {
    constexpr int32_t kMaxDraft = 4;
    int num_draws = 0;
    for (const int32_t vocab_size : {5, 300, 5000}) {
      for (const bool sampled : {false, true}) {
        RoundCase round({.vocab_size = vocab_size,
                         .batch = 60,
                         .max_draft = kMaxDraft,
                         .seed = 11,
                         .sampled = sampled});
        for (int32_t i = 0; i < 60; ++i) round.MakeVerify(i);
        const auto backend = *MakeBackend("cpu");
        REQUIRE(
            backend->Prepare({.vocab_size = vocab_size, .max_batch = 60, .max_draft = kMaxDraft})
                .ok());
        const std::vector<PlaceDecision> decisions =
            RunWithRecords(backend.get(), round.All(), kMaxDraft + 1);
        for (int32_t i = 0; i < 60; ++i) {
          const std::vector<TokenId> tokens = round.tokens(i);
          const auto place = static_cast<int32_t>(tokens.size()) - 1;
          if (round.outcome(i).status != OutcomeStatus::kOk) continue;
          const PlaceDecision decision =
              decisions[static_cast<size_t>(i * (kMaxDraft + 1) + place)];
          if (decision.draw_coin == kNoCoin) continue;
          const CoinInterval interval = decision.draw_interval;
          CAPTURE(vocab_size);
          CAPTURE(i);
          REQUIRE(interval.low <= decision.draw_coin);
          REQUIRE(decision.draw_coin < interval.high);
          REQUIRE(interval.high <= kCoins);
          ++num_draws;
          Task& task = round.task(i);
          const Task before = task;
          std::vector<InjectedCoin> coins(task.coins, task.coins + task.num_coins);
          coins.insert(coins.begin(), {.key = DrawKey(task, place, decision)});
          task.coins = coins.data();
          task.num_coins = static_cast<int32_t>(coins.size());
          const auto token_with = [&](uint64_t value) {
            coins[0].coin = value;
            REQUIRE(backend->Run(round.Some({i})).ok());
            const std::vector<TokenId> drawn = round.tokens(0);
            return drawn.size() == tokens.size() ? drawn.back() : kNoToken;
          };
          CHECK(token_with(interval.low) == tokens.back());
          CHECK(token_with(interval.high - 1) == tokens.back());
          if (interval.low > 0) CHECK(token_with(interval.low - 1) != tokens.back());
          if (interval.high < kCoins) CHECK(token_with(interval.high) != tokens.back());
          task = before;
        }
      }
    }
    CHECK(num_draws > 100);
  }

  TEST_CASE("recording changes no bit of an answer, with any number of threads") {
    for (const int32_t threads : {1, 3}) {
      RoundCase plain({.vocab_size = 3000, .batch = 80, .max_draft = 5, .seed = 3});
      RoundCase recorded({.vocab_size = 3000, .batch = 80, .max_draft = 5, .seed = 3});
      const auto backend = *MakeBackend("cpu");
      REQUIRE(
          backend
              ->Prepare({.vocab_size = 3000, .max_batch = 80, .max_draft = 5, .threads = threads})
              .ok());
      REQUIRE(backend->Run(plain.All()).ok());
      const std::vector<PlaceDecision> decisions = RunWithRecords(backend.get(), recorded.All(), 6);
      CHECK(std::count_if(decisions.begin(), decisions.end(),
                          [](const PlaceDecision& d) { return d.judged; }) > 50);
      for (int32_t i = 0; i < 80; ++i) {
        CAPTURE(i);
        CHECK(plain.answer(i) == recorded.answer(i));
      }
    }
  }
}

}  // namespace
}  // namespace specd
