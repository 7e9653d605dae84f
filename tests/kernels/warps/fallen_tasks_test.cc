// The list of fallen tasks that the first launch of a round leaves to the second, with more tasks
// than warps and round after round in the same memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/kernels/cuda/run_round.h"
#include "tests/support/grid_size.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = 2 * kTileSize + 300;
constexpr int32_t kNumTasks = 40;

// Tasks with drafts of one token. Task i has a target row with nearly all mass on one id and a
// draft row with nearly all mass on another one. A draft of the first id therefore stands and is
// followed by it, and a draft of the second id falls and is replaced by the first.
class OneTokenDrafts {
 public:
  OneTokenDrafts()
      : target_({.vocab_size = kVocabSize, .num_rows = kNumTasks}),
        draft_({.vocab_size = kVocabSize, .num_rows = kNumTasks}),
        drafts_(kNumTasks),
        rows_(2 * kNumTasks),
        tasks_(kNumTasks),
        outcomes_(kNumTasks),
        tokens_(2 * kNumTasks) {
    for (int32_t i = 0; i < kNumTasks; ++i) {
      const auto at = static_cast<size_t>(i);
      std::vector<double> logits(kVocabSize, 0.0);
      logits[static_cast<size_t>(TargetId(i))] = 90;
      target_.Set(i, logits);
      logits[static_cast<size_t>(TargetId(i))] = 0;
      logits[static_cast<size_t>(DraftId(i))] = 90;
      draft_.Set(i, logits);
      rows_[2 * at] = rows_[2 * at + 1] = static_cast<uint32_t>(i);
      tasks_[at].method = VerifyMethod::kToken;
      tasks_[at].seed = at;
      tasks_[at].target_scale = tasks_[at].draft_scale = 1;
      tasks_[at].draft = {.num_nodes = 1,
                          .tokens = &drafts_[at],
                          .kinds = &kSampled,
                          .target_rows = &rows_[2 * at],
                          .draft_rows = &rows_[2 * at]};
    }
    batch_.target = target_.view();
    batch_.draft = draft_.view();
    batch_.tasks = tasks_.data();
    batch_.num_tasks = kNumTasks;
    batch_.outcomes = outcomes_.data();
    batch_.tokens = tokens_.data();
    batch_.tokens_stride = 2;
  }

  const RoundBatch& batch() const { return batch_; }

  // Gives every task another draft, and forgets the answers. Returns the tasks that fall.
  std::vector<int32_t> Draft(const std::function<bool(int32_t)>& falls) {
    std::vector<int32_t> fallen;
    for (int32_t i = 0; i < kNumTasks; ++i) {
      drafts_[static_cast<size_t>(i)] = falls(i) ? DraftId(i) : TargetId(i);
      if (falls(i)) fallen.push_back(i);
    }
    std::ranges::fill(outcomes_, TaskOutcome{.status = OutcomeStatus::kBadToken});
    std::ranges::fill(tokens_, kNoToken);
    return fallen;
  }

  void CheckAnswers(const std::vector<int32_t>& fallen) const {
    for (int32_t i = 0; i < kNumTasks; ++i) {
      CAPTURE(i);
      const auto at = static_cast<size_t>(i);
      const bool falls = std::ranges::binary_search(fallen, i);
      CHECK(outcomes_[at].status == OutcomeStatus::kOk);
      CHECK(outcomes_[at].num_accepted == (falls ? 0 : 1));
      REQUIRE(outcomes_[at].num_tokens == (falls ? 1 : 2));
      CHECK(tokens_[2 * at] == TargetId(i));
      if (!falls) CHECK(tokens_[2 * at + 1] == TargetId(i));
    }
  }

 private:
  static constexpr DraftKind kSampled = DraftKind::kSampled;

  // In different tiles, and of no two tasks the same.
  static TokenId TargetId(int32_t i) { return 3 * i + 1; }
  static TokenId DraftId(int32_t i) { return kTileSize + 5 * i; }

  RowMatrix target_;
  RowMatrix draft_;
  std::vector<TokenId> drafts_;
  std::vector<uint32_t> rows_;
  std::vector<Task> tasks_;
  std::vector<TaskOutcome> outcomes_;
  std::vector<TokenId> tokens_;
  RoundBatch batch_;
};

// From one warp for all parts to more warps than parts.
EmulationOptions ScheduleOf(uint64_t seed) {
  constexpr int32_t kNumBlocks[] = {1, 3, 70};
  return {.num_threads = seed % 2 == 0 ? 32 : 64,
          .schedule_seed = seed,
          .num_blocks = kNumBlocks[seed % 3]};
}

std::vector<int32_t> ListOf(const LaunchMemory& memory) {
  REQUIRE(memory.num_fallen >= 0);
  REQUIRE(memory.num_fallen <= kNumTasks);
  std::vector<int32_t> tasks;
  for (int32_t i = 0; i < memory.num_fallen; ++i) {
    const FallenTask& fallen = memory.fallen[static_cast<size_t>(i)];
    CHECK(fallen.place == 0);
    tasks.push_back(fallen.task);
  }
  std::ranges::sort(tasks);
  return tasks;
}

TEST_SUITE("unit") {
  TEST_CASE("each fallen task is listed once and replaced, round after round in one memory") {
    for (int32_t seed = 0; seed < GridSize({.full = 12, .sanitized = 6}); ++seed) {
      CAPTURE(seed);
      const EmulationOptions schedule = ScheduleOf(static_cast<uint64_t>(seed));
      OneTokenDrafts round;
      LaunchMemory memory(round.batch(), 1);
      REQUIRE(memory.fused.num_launches == 2);
      const std::function<bool(int32_t)> rounds[] = {
          [](int32_t) { return true; }, [](int32_t i) { return i % 3 == 0; },
          [](int32_t) { return false; }, [](int32_t i) { return i == kNumTasks - 1; },
          [](int32_t) { return true; }};
      for (const auto& falls : rounds) {
        CAPTURE(&falls - rounds);
        const std::vector<int32_t> fallen = round.Draft(falls);
        REQUIRE(RunEmulatedBlocks(schedule, [&](EmulatedThread thread) {
                  RunFusedRound(thread, memory.fused);
                }) == "");
        CHECK(ListOf(memory) == fallen);
        REQUIRE(RunEmulatedBlocks(schedule, [&](EmulatedThread thread) {
                  RunResidualPass(thread, memory.fused);
                }) == "");
        CHECK(memory.num_fallen == 0);
        CHECK(memory.counts_are_back());
        round.CheckAnswers(fallen);
      }
    }
  }
}

}  // namespace
}  // namespace specd
