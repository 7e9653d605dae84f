// Rows after the place where a draft ends are not read on a GPU (the tile pass), and that changes
// nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/kernels/bodies/one_task.h"

namespace specd {
namespace {

// Filters that leave few ids of a row where one id has nearly all mass, in all their forms.
std::vector<Filters> NarrowFilters() {
  constexpr auto kShare = static_cast<uint64_t>(0.95 * kTopPOff);
  return {{},
          {.top_k = 1},
          {.top_k = 40},
          {.top_p = kShare},
          {.min_p = -4},
          {.min_p = -4, .top_k = 20, .top_p = kShare},
          {.top_k = 20, .top_p = kShare, .joint = true}};
}

TEST_SUITE("unit") {
  TEST_CASE("a row behind a rejection is not read") {
    std::mt19937_64 random(62);
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      for (size_t n = 0; n < kNumDrafts * (1 + NarrowFilters().size()); ++n) {
        const auto rejected = static_cast<int32_t>(n % kNumDrafts);
        const bool is_scored = n / kNumDrafts == NarrowFilters().size();
        const size_t filters = is_scored ? 0 : n / kNumDrafts;
        CAPTURE(static_cast<int>(method));
        CAPTURE(is_scored);
        CAPTURE(filters);
        CAPTURE(rejected);
        const FourRows rows;
        std::vector<TokenId> draft;
        for (int32_t i = 0; i <= kNumDrafts; ++i) {
          for (int32_t id = 0; id < kVocabSize; ++id) {
            rows.row(i)[id] = static_cast<float>(random() % 1000) * 1e-3f;
          }
          const auto likely = static_cast<TokenId>(random() % kVocabSize);
          rows.row(i)[likely] = 90.0f;  // beside it nothing has any weight
          draft.push_back(i == rejected ? (likely + 1) % kVocabSize : likely);
        }
        draft.resize(kNumDrafts);
        const TokenId after = static_cast<TokenId>(
            std::max_element(rows.row(rejected), rows.row(rejected) + kVocabSize) -
            rows.row(rejected));
        ChainCase chain(method, draft, DraftKind::kOneHot);
        chain.task.target_filters = NarrowFilters()[filters];
        chain.task.scores = {.enabled = is_scored, .mode = ScoreMode::kRawLogit};
        rows.TakeAway(rejected + 1);
        OneTask round(chain.task, rows.view());
        // One warp takes the rows in order of place, so it knows of a rejection before it comes to
        // the next row.
        const bool has_third = is_scored || (filters > 0 && method != VerifyMethod::kGreedy);
        round.Run({.num_threads = 32}, has_third ? 3 : 1);
        CHECK(round.deferred == is_scored);
        const TaskOutcome& outcome = round.outcome;
        CHECK(outcome.status == OutcomeStatus::kOk);
        CHECK(outcome.num_accepted == rejected);
        REQUIRE(outcome.num_tokens == rejected + 1);
        for (int32_t i = 0; i < rejected; ++i) CHECK(round.tokens[i] == draft[i]);
        CHECK(round.tokens[rejected] == after);
        for (int32_t i = 0; is_scored && i <= rejected; ++i) {
          CHECK(round.scores[i].id == round.tokens[i]);
          CHECK(round.scores[i].value == 90.0f);
          CHECK(round.scores[i].rank == 1);
        }
      }
    }
  }

  // Once, lanes looked at a place by the verdict that an earlier round had left there.
  TEST_CASE("a row behind a rejection is not read though its place stood in the round before") {
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      CAPTURE(static_cast<int>(method));
      const FourRows rows;
      std::fill_n(rows.row(0), (kNumDrafts + 1) * kVocabSize, 0.0f);
      std::vector<TokenId> draft;
      for (int32_t i = 0; i <= kNumDrafts; ++i) rows.row(i)[700 + i] = 90.0f;
      for (int32_t i = 0; i < kNumDrafts; ++i) draft.push_back(700 + i);
      ChainCase chain(method, draft, DraftKind::kOneHot);
      OneTask round(chain.task, rows.view());
      round.Run({.num_threads = 32});
      REQUIRE(round.outcome.num_accepted == kNumDrafts);
      draft[0] = 5;
      ChainCase next(method, draft, DraftKind::kOneHot);
      round.batch.tasks = &next.task;
      rows.TakeAway(1);
      round.Run({.num_threads = 32});
      CHECK(round.outcome.status == OutcomeStatus::kOk);
      REQUIRE(round.outcome.num_tokens == 1);
      CHECK(round.tokens[0] == 700);
    }
  }

  TEST_CASE("a row behind the rejection of a sampled token is not read") {
    std::mt19937_64 random(64);
    for (size_t n = 0; n < kNumDrafts * NarrowFilters().size(); ++n) {
      const auto rejected = static_cast<int32_t>(n % kNumDrafts);
      const Filters filters = NarrowFilters()[n / kNumDrafts];
      CAPTURE(n);
      const FourRows target;
      const FourRows drafts;
      std::vector<TokenId> draft;
      std::vector<TokenId> likely;
      for (int32_t i = 0; i <= kNumDrafts; ++i) {
        for (int32_t id = 0; id < kVocabSize; ++id) {
          target.row(i)[id] = static_cast<float>(random() % 1000) * 1e-3f;
          drafts.row(i)[id] = static_cast<float>(random() % 1000) * 1e-3f;
        }
        // Beside these nothing has any weight, so where they are the same the token stands.
        likely.push_back(static_cast<TokenId>(random() % kVocabSize));
        draft.push_back(i == rejected ? (likely.back() + 1) % kVocabSize : likely.back());
        target.row(i)[likely.back()] = 90.0f;
        drafts.row(i)[draft.back()] = 90.0f;
      }
      draft.resize(kNumDrafts);
      ChainCase chain(VerifyMethod::kToken, draft, DraftKind::kSampled);
      chain.task.target_filters = chain.task.draft_filters = filters;
      target.TakeAway(rejected + 1);
      drafts.TakeAway(rejected + 1);
      OneTask round(chain.task, target.view());
      round.batch.draft = drafts.view();
      round.Run({.num_threads = 32}, n < kNumDrafts ? 2 : 3);
      CHECK_FALSE(round.deferred);
      CHECK(round.outcome.status == OutcomeStatus::kOk);
      CHECK(round.outcome.num_accepted == rejected);
      REQUIRE(round.outcome.num_tokens == rejected + 1);
      for (int32_t i = 0; i < rejected; ++i) CHECK(round.tokens[i] == draft[i]);
      CHECK(round.tokens[rejected] == likely[rejected]);
    }
  }

  TEST_CASE("a sampled token that fell does not stand because its row has changed since") {
    const FourRows target;
    const FourRows drafts;
    std::fill_n(target.row(0), (kNumDrafts + 1) * kVocabSize, 0.0f);
    std::fill_n(drafts.row(0), (kNumDrafts + 1) * kVocabSize, 0.0f);
    const std::vector<TokenId> draft = {10, 11, 12};
    for (int32_t i = 0; i < kNumDrafts; ++i) {
      drafts.row(i)[draft[static_cast<size_t>(i)]] = 90.0f;
      target.row(i)[i == kNumDrafts - 1 ? 500 : draft[static_cast<size_t>(i)]] = 90.0f;
    }
    ChainCase chain(VerifyMethod::kToken, draft, DraftKind::kSampled);
    // Where a side channel speaks for the draft rows, the third launch judges the place once more.
    const std::vector<float> weights(kNumDrafts, 1.0f);
    const std::vector<double> masses(kNumDrafts, 1.0);
    chain.task.draft.draft_weights = weights.data();
    chain.task.draft.draft_masses = masses.data();
    OneTask round(chain.task, target.view());
    round.batch.draft = drafts.view();
    // The last row was not read. Memory that is used again may hold any verdict about it.
    round.Run({.num_threads = 32}, 3, [&](const FusedRound& fused) {
      target.row(kNumDrafts - 1)[draft.back()] = 90.0f;
      FactsOf(fused, kNumDrafts)->place.verdict = Verdict::kStands;
    });
    CHECK(round.deferred);
    CHECK(round.outcome.status == OutcomeStatus::kBadTargetRow);
    CHECK(round.outcome.num_tokens == kNumDrafts - 1);
  }

  TEST_CASE("a row behind the end of a draft that only the device knows is read by nobody") {
    std::mt19937_64 random(63);
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      for (int32_t num_drafts = 0; num_drafts < kNumDrafts; ++num_drafts) {
        CAPTURE(static_cast<int>(method));
        CAPTURE(num_drafts);
        const FourRows rows;
        std::fill_n(rows.row(0), (kNumDrafts + 1) * kVocabSize, 0.0f);
        // All draft tokens stand, so that the decision comes as far as it can.
        std::vector<TokenId> row(kNumDrafts, kNoToken);
        for (int32_t i = 0; i < num_drafts; ++i) row[static_cast<size_t>(i)] = 100 + i;
        for (int32_t i = 0; i <= num_drafts; ++i) rows.row(i)[100 + i] = 90.0f;
        ChainCase chain(method, std::vector<TokenId>(kNumDrafts), DraftKind::kOneHot);
        chain.task.drafts_by_slot = true;
        chain.task.draft.tokens = nullptr;
        rows.TakeAway(num_drafts + 1);
        OneTask round(chain.task, rows.view());
        round.batch.draft_tokens = {row.data(), kNumDrafts};
        round.Run({.num_threads = 96, .schedule_seed = random(), .num_blocks = 3});
        CHECK(round.outcome.status == OutcomeStatus::kOk);
        CHECK(round.outcome.num_accepted == num_drafts);
        CHECK(round.outcome.num_drafts == num_drafts);
        for (int32_t i = 0; i <= num_drafts; ++i) CHECK(round.tokens[i] == 100 + i);
      }
    }
  }
}

}  // namespace
}  // namespace specd
