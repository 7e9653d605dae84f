// ChainRun runs VerifyChain on one sequence for tests of the bodies, with any coins and by any
// team.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/bodies/verify.h"
#include "kernels/cpu/scalar_team.h"
#include "tests/gpu/emulation/emulated_block.h"

namespace specd {

// The tasks of most tests, compiled once, in run_chain.cc.
extern template TaskOutcome RunTask(ScalarTeam<CpuTarget::kBaseline>&, const RoundBatch&,
                                    const Task&, const TaskWorkspace&, const KeyedCoins&,
                                    const TaskOutput&);
extern template TaskOutcome RunTask(EmulatedTeam&, const RoundBatch&, const Task&,
                                    const TaskWorkspace&, const KeyedCoins&, const TaskOutput&);

// A task that owns its arrays. Target rows are first_row, first_row + 1, ... and draft rows the
// same numbers of the draft tensor.
class ChainCase {
 public:
  ChainCase(VerifyMethod method, std::vector<TokenId> draft, DraftKind kind, uint32_t first_row = 0)
      : ChainCase(method, draft, std::vector<DraftKind>(draft.size(), kind), first_row) {}
  ChainCase(VerifyMethod method, std::vector<TokenId> draft, std::vector<DraftKind> kinds,
            uint32_t first_row = 0)
      : tokens_(std::move(draft)), kinds_(std::move(kinds)) {
    for (size_t i = 0; i <= tokens_.size(); ++i) rows_.push_back(first_row + uint32_t(i));
    task.method = method;
    task.target_scale = task.draft_scale = 1.0f;
    task.draft.num_nodes = static_cast<int32_t>(tokens_.size());
    task.draft.tokens = tokens_.data();
    task.draft.kinds = kinds_.data();
    task.draft.target_rows = rows_.data();
    task.draft.draft_rows = rows_.data();
  }
  ChainCase(const ChainCase&) = delete;
  ChainCase& operator=(const ChainCase&) = delete;

  Task task;

 private:
  std::vector<TokenId> tokens_;
  std::vector<DraftKind> kinds_;
  std::vector<uint32_t> rows_;
};

struct ChainResult {
  TaskOutcome outcome;
  std::vector<TokenId> tokens;
  std::vector<int32_t> path = {};  // the accepted nodes

  bool operator==(const ChainResult& other) const {
    return tokens == other.tokens && path == other.path && outcome.status == other.outcome.status &&
           outcome.num_accepted == other.outcome.num_accepted &&
           outcome.num_tokens == other.outcome.num_tokens &&
           outcome.empty_residuals == other.outcome.empty_residuals &&
           outcome.invalid_drafts == other.outcome.invalid_drafts &&
           outcome.fault == other.outcome.fault;
  }
};

// A workspace before a round; a body may rely on none of its values.
inline std::vector<uint64_t> PoisonedWorkspace(int32_t vocab_size, int32_t max_draft) {
  std::vector<uint64_t> memory(TaskWorkspaceBytes(vocab_size, max_draft) / 8);
  std::memset(memory.data(), kPoison, memory.size() * 8);
  return memory;
}

// A workspace that owns its memory, poisoned.
class OwnedWorkspace {
 public:
  explicit OwnedWorkspace(int32_t vocab_size, int32_t max_draft = 0)
      : memory_(PoisonedWorkspace(vocab_size, max_draft)),
        workspace_(TaskWorkspaceAt(memory_.data(), vocab_size, max_draft)) {}
  OwnedWorkspace(const OwnedWorkspace&) = delete;
  OwnedWorkspace& operator=(const OwnedWorkspace&) = delete;
  const TaskWorkspace& operator*() const { return workspace_; }
  const TaskWorkspace* operator->() const { return &workspace_; }

 private:
  std::vector<uint64_t> memory_;
  TaskWorkspace workspace_;
};

// A row without edits.
inline Row PlainRow(const RowView& view) {
  Row row;
  row.view = view;
  return row;
}

// A round of one task, with room for its answer.
struct ChainRun {
  ChainRun(const Task& the_task, const TensorView& target, const TensorView& draft,
           const MaskView& mask = {})
      : task(the_task), memory(PoisonedWorkspace(target.vocab_size, the_task.draft.num_nodes)) {
    batch.target = target;
    batch.draft = draft;
    batch.mask = mask;
    result.tokens.resize(task.draft.num_nodes + 1);
    batch.tokens = result.tokens.data();
    result.path.resize(result.tokens.size());
    batch.path = result.path.data();
    batch.scores_stride = NumScores(task.scores);
    scores.resize(result.tokens.size() * static_cast<size_t>(batch.scores_stride));
    batch.scores = scores.data();
    samples.resize(static_cast<size_t>(task.num_children));
    batch.samples = samples.data();
  }
  template <Team T, typename Coins>
  TaskOutcome By(T& team, const Coins& coins) {
    const TaskWorkspace workspace =
        TaskWorkspaceAt(memory.data(), batch.target.vocab_size, task.draft.num_nodes);
    return RunTask(team, batch, task, workspace, coins, OutputOf(batch, 0));
  }
  ChainResult Finish(const TaskOutcome& outcome) {
    result.outcome = outcome;
    result.tokens.resize(outcome.num_tokens);
    result.path.resize(outcome.num_accepted);
    return result;
  }

  const Task& task;
  RoundBatch batch;
  std::vector<uint64_t> memory;
  ChainResult result;
  std::vector<TokenScore> scores;    // NumScores for each token
  std::vector<DraftSample> samples;  // the draft tokens of a kSampleDraft task
};

template <typename Coins>
ChainResult RunScalar(const Task& task, const TensorView& target, const TensorView& draft,
                      const Coins& coins, const MaskView& mask = {}) {
  ChainRun run(task, target, draft, mask);
  ScalarTeam<CpuTarget::kBaseline> team;
  return run.Finish(run.By(team, coins));
}

template <typename Coins>
ChainResult RunEmulated(const Task& task, const TensorView& target, const TensorView& draft,
                        const Coins& coins, const EmulationOptions& options,
                        const MaskView& mask = {}) {
  ChainRun run(task, target, draft, mask);
  std::vector<TaskOutcome> outcomes(options.num_threads);
  const std::string error = RunEmulatedBlock(options, [&](EmulatedThread thread) {
    EmulatedTeam team(thread);
    outcomes[thread.warp() * 32 + thread.lane()] = run.By(team, coins);
  });
  REQUIRE(error == "");
  const ChainResult result = run.Finish(outcomes[0]);
  for (const TaskOutcome& outcome : outcomes) {
    REQUIRE(ChainResult{outcome, result.tokens, result.path} == result);
  }
  return result;
}

}  // namespace specd
