// Tokens that are replaced from residuals on a GPU (the second launch). The tests check the drawn
// token, the steps that are read for it, and the tasks that are left to the third launch.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/kernels/bodies/one_task.h"
#include "tests/kernels/cuda/conformance_grid.h"
#include "tests/kernels/cuda/run_round.h"
#include "tests/support/grid_size.h"

namespace specd {
namespace {

constexpr int32_t kRejected = 2;
// Three tiles apart, so that different warps read them, and in both halves of a tile.
constexpr TokenId kBoth = 5;
constexpr TokenId kOnlyTarget = 3 * kTileSize + 1700;
constexpr TokenId kOnlyDraft = 6 * kTileSize + 1;

// Where the draft falls p is half kBoth, half kOnlyTarget, and q half kBoth, half kOnlyDraft: all
// that (p - q)+ has is on kOnlyTarget. Everything else there is at `rest`.
struct Fall {
  explicit Fall(float rest = 0.0f) {
    for (int32_t i = 0; i <= kNumDrafts; ++i) {
      std::fill_n(target.row(i), kVocabSize, i == kRejected ? rest : 0.0f);
      std::fill_n(drafts.row(i), kVocabSize, i == kRejected ? rest : 0.0f);
      if (i == kRejected) continue;
      for (const TokenId id : {100 + i, 2 * kTileSize + i}) {
        target.row(i)[id] = drafts.row(i)[id] = 90.0f;
      }
    }
    for (const TokenId id : {kBoth, kOnlyTarget}) target.row(kRejected)[id] = 90.0f;
    for (const TokenId id : {kBoth, kOnlyDraft}) drafts.row(kRejected)[id] = 90.0f;
  }

  void Check(const OneTask& round) const {
    CHECK(round.outcome.status == OutcomeStatus::kOk);
    CHECK(round.outcome.num_accepted == kRejected);
    CHECK(round.outcome.empty_residuals == 0);
    REQUIRE(round.outcome.num_tokens == kRejected + 1);
    for (int32_t i = 0; i < kRejected; ++i) CHECK(round.tokens[i] == 100 + i);
    CHECK(round.tokens[kRejected] == kOnlyTarget);
  }

  const FourRows target;
  const FourRows drafts;
  ChainCase chain{VerifyMethod::kToken, {100, 101, kOnlyDraft}, DraftKind::kSampled};
};

EmulationOptions ScheduleOf(uint64_t seed) {
  return {.num_threads = 32 + 32 * static_cast<int32_t>(seed % 4),
          .schedule_seed = seed,
          .num_blocks = 1 + static_cast<int32_t>(seed % 3)};
}

TEST_SUITE("unit") {
  TEST_CASE("a token that fell is replaced in the second launch") {
    for (int32_t seed = 0; seed < GridSize({.full = 20, .sanitized = 5}); ++seed) {
      CAPTURE(seed);
      Fall fall;
      fall.chain.task.seed = seed;
      OneTask round(fall.chain.task, fall.target.view());
      round.batch.draft = fall.drafts.view();
      round.Run(ScheduleOf(seed), 2);
      CHECK(round.fallen == kRejected);
      fall.Check(round);
    }
  }

  TEST_CASE("where filters leave nothing of the target row, neither row is read again") {
    // With an edit the rows are not plain; this one changes nothing.
    const TokenEdit none = {.id = kBoth + 1};
    for (const int32_t num_edits : {0, 1}) {
      CAPTURE(num_edits);
      Fall fall;
      fall.chain.task.target_filters = {.top_k = 2};
      fall.chain.task.edits.edits = &none;
      fall.chain.task.edits.num_edits = num_edits;
      OneTask round(fall.chain.task, fall.target.view());
      round.batch.draft = fall.drafts.view();
      round.Run(ScheduleOf(1), 3, [&](const FusedRound&) {
        for (int32_t tile = 0; tile < NumTiles(kVocabSize); ++tile) {
          if (tile == kBoth / kTileSize || tile == kOnlyTarget / kTileSize) continue;
          fall.target.TakeAwayTile(kRejected, tile);
          fall.drafts.TakeAwayTile(kRejected, tile);
        }
      });
      CHECK(round.fallen == kRejected);
      CHECK_FALSE(round.deferred);
      fall.Check(round);
    }
  }

  // The peaks that the first pass left are those of a row without anything.
  TEST_CASE("a residual of a row for which min_tokens yielded") {
    std::vector<TokenEdit> ends(2);
    ends[0] = {.id = kBoth, .flags = kEditEnd};
    ends[1] = {.id = kOnlyTarget, .flags = kEditEnd};
    std::vector<uint32_t> words(kVocabSize / 32);
    for (const TokenId id : {kBoth, kOnlyTarget}) words[id / 32] |= 1u << (id % 32);
    std::vector<PlaceEdits> places(kNumDrafts + 1);
    places[kRejected].mask_row = 0;
    places[kRejected].below_min_tokens = true;
    for (const bool filtered : {false, true}) {
      CAPTURE(filtered);
      Fall fall;
      fall.chain.task.edits.edits = ends.data();
      fall.chain.task.edits.num_edits = static_cast<int32_t>(ends.size());
      fall.chain.task.places = places.data();
      if (filtered) fall.chain.task.target_filters = {.min_p = -4};
      OneTask round(fall.chain.task, fall.target.view());
      round.batch.draft = fall.drafts.view();
      round.batch.mask = {words.data(), 1, static_cast<int64_t>(words.size())};
      round.Run(ScheduleOf(7), filtered ? 3 : 2);
      CHECK(round.fallen == kRejected);
      CHECK_FALSE(round.deferred);
      fall.Check(round);
    }
  }

  TEST_CASE("tokens that are scored are replaced in the second launch too") {
    Fall fall;
    fall.chain.task.scores = {.enabled = true, .mode = ScoreMode::kRawLogit};
    fall.target.TakeAway(kRejected + 1);
    fall.drafts.TakeAway(kRejected + 1);
    OneTask round(fall.chain.task, fall.target.view());
    round.batch.draft = fall.drafts.view();
    round.Run({.num_threads = 32}, 3);
    CHECK(round.fallen == kRejected);
    CHECK(round.replaced.verdict == Verdict::kEnds);
    CHECK(round.replaced.token == kOnlyTarget);
    fall.Check(round);
    CHECK(round.scores[kRejected].id == kOnlyTarget);
    CHECK(round.scores[kRejected].value == 90.0f);
    CHECK(round.scores[kRejected].rank == 1);  // beside another
  }

  // If an engine writes memory meanwhile, work may remain that no warp is left to do.
  TEST_CASE("what is left behind the last launch is a bad row") {
    Fall fall;
    OneTask round(fall.chain.task, fall.target.view());
    round.batch.draft = fall.drafts.view();
    TokenId next_token = kNoToken;
    const SlotOutput next_tokens = {&next_token};
    round.batch.slot_outputs = &next_tokens;
    round.batch.num_slot_outputs = 1;
    round.Run(ScheduleOf(5), 2, [&](const FusedRound& fused) {
      FactsOf(fused, kRejected - 1)->place.verdict = Verdict::kLeft;
    });
    CHECK_FALSE(round.deferred);
    CHECK(round.outcome.status == OutcomeStatus::kBadTargetRow);
    REQUIRE(round.outcome.num_tokens == kRejected - 1);
    CHECK(next_token == 100 + kRejected - 2);  // the accepted tokens stand
  }

  // The third launch must not continue after the place, because the rows there have not been read.
  TEST_CASE("a residual that a change has left empty, of a row that it has made wide") {
    for (const Verdict old : {Verdict::kStands, Verdict::kEnds}) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        CAPTURE(seed);
        const FourRows target;
        const FourRows drafts;
        std::fill_n(target.row(0), (kNumDrafts + 1) * kVocabSize, -20.0f);
        std::fill_n(drafts.row(0), (kNumDrafts + 1) * kVocabSize, 10.0f);
        for (int32_t step = 0; step < 50; ++step) target.row(0)[step * kLanes + 10] = 10.0f;
        ChainCase chain(VerifyMethod::kToken, {3, 4, 5}, DraftKind::kSampled);
        chain.task.seed = seed;
        chain.task.target_filters = {.top_k = 50};
        OneTask round(chain.task, target.view());
        round.batch.draft = drafts.view();
        round.Run({.num_threads = 32}, 3, [&](const FusedRound& fused) {
          std::fill_n(target.row(0), kVocabSize, 10.0f);
          std::fill_n(drafts.row(0), kVocabSize, 19.5f);
          // The facts of an earlier round, in memory that is used again.
          FactsOf(fused, 1)->place = {old, 1234, 0};
        });
        CHECK(round.fallen == 0);
        CHECK(round.deferred);
        CHECK(round.outcome.status == OutcomeStatus::kBadTargetRow);
        CHECK(round.outcome.num_tokens == 0);
      }
    }
  }

  // Row 0 has its draft token at +inf, and row 1 nearly all on its own. The nucleus of row 2 is too
  // wide for a warp alone, and its draft token lies behind it.
  TEST_CASE("the third launch goes on behind the places that the first one has decided") {
    for (const uint64_t seed : {1, 2, 3}) {
      CAPTURE(seed);
      const FourRows target;
      target.row(0)[100] = INFINITY;
      target.row(1)[101] = 90.0f;
      ChainCase chain(VerifyMethod::kExactMatch, {100, 101, kVocabSize - 1}, DraftKind::kOneHot);
      chain.task.seed = seed;
      chain.task.target_filters = {.top_p = kTopPOff / 100 * 99};
      OneTask round(chain.task, target.view());
      TokenId next_token = kNoToken;
      const SlotOutput next_tokens = {&next_token};
      round.batch.slot_outputs = &next_tokens;
      round.batch.num_slot_outputs = 1;
      round.Run(ScheduleOf(seed), 3, [&](const FusedRound&) { target.TakeAway(0, 2); });
      CHECK(round.deferred);
      CHECK(round.outcome.status == OutcomeStatus::kOk);
      CHECK(round.outcome.num_drafts == kNumDrafts);
      CHECK(round.outcome.num_accepted == 2);
      CHECK(round.outcome.point_masses == 1);
      REQUIRE(round.outcome.num_tokens == 3);
      CHECK(round.tokens[0] == 100);
      CHECK(round.tokens[1] == 101);
      CHECK(round.tokens[2] >= 0);
      CHECK(round.tokens[2] < kVocabSize * 99 / 100 + 1);
      CHECK(next_token == round.tokens[2]);
    }
  }

  TEST_CASE("random rounds come to residuals of every kind, with the scalar team's answers") {
    int32_t num_plain = 0;
    int32_t num_edited = 0;
    int32_t num_cut = 0;
    for (const Shape& shape : kShapes) {
      for (const int32_t vocab_size : {300, 4096}) {
        constexpr int32_t kBatch = 48;
        constexpr int32_t kMaxDraft = 3;
        RoundCase round(OptionsOf(shape, vocab_size, kBatch, kMaxDraft));
        const LaunchMemory memory(round.All(), kMaxDraft);
        REQUIRE(RunEmulatedBlocks({.num_threads = 64}, [&](EmulatedThread thread) {
                  RunFusedRound(thread, memory.fused);
                }) == "");
        for (int32_t i = 0; i < memory.num_fallen; ++i) {
          const FallenTask& fallen = memory.fallen[static_cast<size_t>(i)];
          const FallenPlace& place =
              *FallenPlaceAt(FusedWorkspaceAt(memory.fused, fallen.task), fallen.place);
          (place.plain ? num_plain : num_edited) += 1;
          num_cut += place.target.has_cut ? 1 : 0;
        }
        const std::vector<std::string> expected = ScalarAnswers(round);
        CHECK(LaunchRound(round, kMaxDraft, {.num_threads = 64}).answers == expected);
      }
    }
    CHECK(num_plain >= 10);
    CHECK(num_edited >= 10);
    CHECK(num_cut >= 10);
  }
}

}  // namespace
}  // namespace specd
