// ScalarAnswers and LaunchRound run whole rounds for tests: task after task by the scalar team, or
// in launches of emulated blocks.
//
// The emulated launches do the work of kernels/cuda/round_kernel.cu on a device. No other test file
// lays out a launch's memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/bodies/resolve.h"
#include "kernels/warps/fused_round.h"
#include "tests/gpu/emulation/emulated_block.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/round_case.h"

namespace specd {

std::vector<std::string> AnswersOf(const RoundCase& round, int32_t num_tasks);

// REQUIRES: all tasks are complete.
std::vector<std::string> ScalarAnswers(RoundCase& round, const RoundBatch& batch);
std::vector<std::string> ScalarAnswers(RoundCase& round);

struct LaunchResult {
  std::string error;  // the error that stopped the emulation, if there is one
  std::vector<std::string> answers;
  bool counts_are_back = true;  // LaunchMemory::counts_are_back
};

// The memory of a round's launches.
class LaunchMemory {
 public:
  LaunchMemory(const RoundBatch& batch, int32_t max_draft);
  ~LaunchMemory();
  LaunchMemory(const LaunchMemory&) = delete;
  LaunchMemory& operator=(const LaunchMemory&) = delete;

  // Leaves every decision to the last launch.
  void DeferAll();

  // The counts are as before, so the next round may begin.
  bool counts_are_back() const;
  // The result of launches that ended with this error; empty: no error.
  LaunchResult ResultOf(const RoundCase& round, const std::string& error) const;

  FusedRound fused;
  std::vector<TaskProgress> progress;
  int32_t num_fallen = 0;
  std::vector<FallenTask> fallen;

 private:
  std::vector<AheadRow> rows_;
  std::vector<int32_t> row_arrivals_;
  std::vector<char> workspaces_;
  std::vector<Task> tasks_;
  std::vector<char> scratch_;
};

// Runs all launches of a round.
LaunchResult LaunchRound(const RoundCase& round, const RoundBatch& batch, int32_t max_draft,
                         const EmulationOptions& options);
LaunchResult LaunchRound(RoundCase& round, int32_t max_draft, const EmulationOptions& options);

// Runs the last launch under `options`, after a first launch that reads rows and decides nothing.
LaunchResult LaunchDeferred(RoundCase& round, int32_t max_draft, const EmulationOptions& options);

}  // namespace specd
