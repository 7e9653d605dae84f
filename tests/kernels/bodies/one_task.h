// OneTask runs one task through the launches of a round for tests. A test can take its memory away,
// change it between launches, and look at it.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "kernels/bodies/resolve.h"
#include "kernels/warps/fused_round.h"
#include "kernels/warps/list_rows.h"
#include "tests/gpu/emulation/emulated_block.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/rows.h"

namespace specd {

inline constexpr int32_t kVocabSize = 16 * kTileSize;
inline constexpr int32_t kNumDrafts = 3;

// Four rows. Each has pages of its own, so a test can take one away.
class FourRows {
 public:
  FourRows() {
    memory_ = static_cast<float*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory_ != MAP_FAILED);
    REQUIRE(kVocabSize * sizeof(float) % static_cast<size_t>(sysconf(_SC_PAGESIZE)) == 0);
  }
  FourRows(const FourRows&) = delete;
  FourRows& operator=(const FourRows&) = delete;
  ~FourRows() { munmap(memory_, kBytes); }

  float* row(int32_t i) const { return memory_ + i * kVocabSize; }
  void TakeAway(int32_t first, int32_t end = kNumDrafts + 1) const {
    const size_t row_bytes = kVocabSize * sizeof(float);
    REQUIRE(mprotect(row(first), static_cast<size_t>(end - first) * row_bytes, PROT_NONE) == 0);
  }
  void TakeAwayTile(int32_t i, int32_t tile) const {
    REQUIRE(mprotect(row(i) + tile * kTileSize, kTileSize * sizeof(float), PROT_NONE) == 0);
  }
  TensorView view() const {
    return {memory_, DType::kFloat32, kNumDrafts + 1, kVocabSize, kVocabSize, {}};
  }

 private:
  static constexpr size_t kBytes = (kNumDrafts + 1) * kVocabSize * sizeof(float);
  float* memory_;
};

// A round of one task, with room for its answer.
struct OneTask {
  OneTask(const Task& task, const TensorView& target) {
    batch.target = target;
    batch.tasks = &task;
    batch.num_tasks = 1;
    batch.outcomes = &outcome;
    batch.tokens = tokens;
    batch.tokens_stride = kNumDrafts + 1;
    batch.scores = scores;
    batch.scores_stride = NumScores(task.scores);
  }

  // between(fused) runs between the first launch and the next.
  void Run(const EmulationOptions& options, int32_t num_launches = 1,
           const std::function<void(const FusedRound&)>& between = {}) {
    std::vector<AheadRow> rows(NumTaskRows(kNumDrafts));
    std::vector<int32_t> row_arrivals(NumTaskRows(kNumDrafts) + 1);
    TaskProgress progress;
    int32_t num_fallen = 0;
    FallenTask listed;
    std::vector<char> scratch(ResolveBytes(kNumDrafts, 0), char(kPoison));
    Task resolved;
    FusedRound fused{.batch = batch,
                     .rows = rows.data(),
                     .row_arrivals = row_arrivals.data(),
                     .progress = &progress,
                     .fallen = {.count = &num_fallen, .tasks = &listed},
                     .workspaces = workspace.data(),
                     .max_draft = kNumDrafts,
                     .resolve = {batch.tasks, &resolved, scratch.data(), kNumDrafts}};
    ListRowsAhead(batch, kNumDrafts, rows.data(), row_arrivals.data(), &progress, &fused);
    REQUIRE(fused.num_launches == num_launches);
    fused.batch.tasks = &resolved;
    REQUIRE(RunEmulatedBlocks(options, [&](EmulatedThread thread) { RunResolve(thread, fused); }) ==
            "");
    REQUIRE(RunEmulatedBlocks(options,
                              [&](EmulatedThread thread) { RunFusedRound(thread, fused); }) == "");
    fallen = num_fallen == 0 ? -1 : listed.place;
    if (between) between(fused);
    if (num_launches >= 2) {
      REQUIRE(RunEmulatedBlocks(
                  options, [&](EmulatedThread thread) { RunResidualPass(thread, fused); }) == "");
    }
    if (fallen >= 0) {
      const TaskWorkspace memory = FusedWorkspaceAt(fused, 0);
      replaced = AheadAt(memory.ahead, TargetTaskRow(fallen), kVocabSize).facts->place;
    }
    deferred = progress.at_once == 0 || progress.deferred != 0;
    if (num_launches == 3) {
      REQUIRE(RunEmulatedBlocks(
                  options, [&](EmulatedThread thread) { RunDeferredTasks(thread, fused); }) == "");
    }
    REQUIRE(progress.dead == 0);
    REQUIRE(num_fallen == 0);
    REQUIRE(progress.rows_done == 0);
    for (const int32_t count : row_arrivals) REQUIRE(count == 0);
  }

  RoundBatch batch;
  // What one round leaves is there in the next.
  std::vector<char> workspace =
      std::vector<char>(FusedWorkspaceBytes(kVocabSize, kNumDrafts), char(kPoison));
  TaskOutcome outcome;
  TokenId tokens[kNumDrafts + 1] = {};
  TokenScore scores[kNumDrafts + 1];  // the scores of each token alone, if requested
  int32_t fallen = -1;                // the fallen place that the second launch found
  PlaceVerdict replaced;              // the verdict that the second launch left
  bool deferred = false;              // whether the task was left to the third launch
};

// The facts of the first launch about a place.
inline AheadFacts* FactsOf(const FusedRound& fused, int32_t place) {
  const TaskWorkspace workspace = FusedWorkspaceAt(fused, 0);
  return AheadAt(workspace.ahead, TargetTaskRow(place), kVocabSize).facts;
}

}  // namespace specd
