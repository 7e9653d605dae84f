#include "tests/gpu/emulation/emulated_backend.h"

#include <algorithm>
#include <string>

#include "kernels/bodies/resolve.h"
#include "kernels/bodies/transform.h"
#include "kernels/bodies/verify.h"
#include "kernels/core/fp_environment.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/warps/recording_team.h"
#include "tests/gpu/emulation/emulated_block.h"

namespace specd {
namespace {

// Two warps: sums and ballots cross warps, and fibers are few.
constexpr int32_t kNumThreads = 64;

absl::Status StatusOf(const std::string& error) {
  return error.empty() ? absl::OkStatus() : absl::InternalError("the emulated block: " + error);
}

// `index` is that of the task or row, and decides the schedule.
template <class Body>
absl::Status RunBlock(int32_t index, const Body& body) {
  return StatusOf(RunEmulatedBlock(
      {.num_threads = kNumThreads, .schedule_seed = static_cast<uint64_t>(index)}, body));
}

}  // namespace

EmulatedBackend::EmulatedBackend() = default;
EmulatedBackend::~EmulatedBackend() = default;

absl::Status EmulatedBackend::Prepare(const BackendLimits& limits) {
  SPECD_CHECK(limits.vocab_size >= 1 && limits.vocab_size <= kVocabSizeMax);
  limits_ = limits;
  workspace_.assign(TaskWorkspaceBytes(limits.vocab_size, limits.max_draft), std::byte{kPoison});
  resolved_.resize(static_cast<size_t>(limits.max_batch));
  resolve_scratch_ = std::make_unique<char[]>(
      static_cast<size_t>(limits.max_batch * ResolveBytes(limits.max_draft, limits.recent_room)));
  return absl::OkStatus();
}

absl::Status EmulatedBackend::Resolve(RoundBatch* batch) {
  if (std::none_of(batch->tasks, batch->tasks + batch->num_tasks, NeedsResolve)) {
    return absl::OkStatus();
  }
  const ResolvePlan plan{.given = batch->tasks,
                         .tasks = resolved_.data(),
                         .scratch = resolve_scratch_.get(),
                         .max_draft = limits_.max_draft};
  absl::Status status =
      RunBlock(0, [&](const EmulatedThread& thread) { RunResolve(thread, *batch, plan, nullptr); });
  batch->tasks = resolved_.data();
  return status;
}

absl::Status EmulatedBackend::Run(const RoundBatch& batch) {
  SPECD_CHECK(batch.target.vocab_size >= 1 && batch.target.vocab_size <= limits_.vocab_size);
  SPECD_CHECK(batch.num_tasks <= limits_.max_batch);
  const FpEnvironment environment;
  RoundBatch resolved = batch;
  if (absl::Status status = Resolve(&resolved); !status.ok()) return status;
  const TaskWorkspace workspace =
      TaskWorkspaceAt(workspace_.data(), limits_.vocab_size, limits_.max_draft);
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    const Task& task = resolved.tasks[i];
    const KeyedCoins coins(task.seed, task.coins, task.num_coins);
    absl::Status status = RunBlock(i, [&](const EmulatedThread& thread) {
      RecordingTeam<EmulatedThread> team(thread);
      const TaskOutcome outcome =
          RunTask(team, resolved, task, workspace, coins, OutputOf(resolved, i));
      if (team.leader()) resolved.outcomes[i] = outcome;
    });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The host's part of a round is the same for every backend.
absl::Status EmulatedBackend::WriteSlotOutputs(const RoundBatch& batch) {
  return CpuBackend(CpuTarget::kBaseline).WriteSlotOutputs(batch);
}

absl::Status EmulatedBackend::Transform(const TransformBatch& batch) {
  SPECD_CHECK(batch.source.vocab_size >= 1 && batch.source.vocab_size <= limits_.vocab_size);
  const FpEnvironment environment;
  const TaskWorkspace workspace =
      TaskWorkspaceAt(workspace_.data(), limits_.vocab_size, limits_.max_draft);
  for (int32_t i = 0; i < batch.num_rows; ++i) {
    const RowTransform& transform = batch.rows[i];
    absl::Status status = RunBlock(i, [&](const EmulatedThread& thread) {
      EmulatedTeam team(thread);
      const OutcomeStatus row_status =
          TransformRow(team, RowAt(batch.source, transform.row), transform, workspace.target);
      if (team.leader()) batch.statuses[i] = row_status;
    });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace specd
