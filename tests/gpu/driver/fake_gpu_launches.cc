// The work of FakeGpuDriver's launches, and its demands on their memory.
#include <spdlog/fmt/fmt.h>

#include <cstring>

#include "kernels/bodies/resolve.h"
#include "kernels/bodies/transform.h"
#include "kernels/warps/fetch.h"
#include "kernels/warps/fused_round.h"
#include "kernels/warps/record.h"
#include "kernels/warps/staged_turn.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/host_words.h"

namespace specd {
namespace {

bool Holds(const FakeGpu::Blocks& blocks, const void* begin, size_t size_bytes) {
  const auto after = blocks.upper_bound(const_cast<void*>(begin));
  if (after == blocks.begin()) return false;
  const std::vector<uint64_t>& block = *std::prev(after)->second;
  const auto offset = static_cast<const char*>(begin) - reinterpret_cast<const char*>(block.data());
  return static_cast<size_t>(offset) + size_bytes <= block.size() * 8;
}

}  // namespace

GpuResult FakeGpuDriver::CheckRange(const char* what, const void* begin, size_t size_bytes) const {
  if (Holds(gpu_->allocations, begin, size_bytes) || Holds(gpu_->pinned, begin, size_bytes)) {
    return GpuResult::Ok();
  }
  return GpuResult::Error(
      fmt::format("{} bytes of a {} are not in memory of the device", size_bytes, what));
}

bool FakeGpuDriver::IsDeviceMemory(const void* address) const {
  return Holds(gpu_->allocations, address, 0) ||
         (gpu_->is_imported != nullptr && gpu_->is_imported(address));
}

GpuResult FakeGpuDriver::CheckAddresses(const char* what,
                                        std::initializer_list<const void*> addresses) const {
  for (const void* const address : addresses) {
    // One past the end is where an array of nothing lies.
    if (address == nullptr || IsDeviceMemory(address) || Holds(gpu_->pinned, address, 0)) continue;
    return GpuResult::Error(
        fmt::format("address {} of a {} is not device memory", &address - addresses.begin(), what));
  }
  return GpuResult::Ok();
}

GpuResult FakeGpuDriver::CheckTask(const Task& task) const {
  const Draft& draft = task.draft;
  GpuResult result = CheckAddresses(
      "task", {draft.tokens, draft.kinds, draft.target_rows, draft.draft_rows, draft.draft_weights,
               draft.draft_masses, draft.target_argmax, task.edits.edits, task.edits.allowed,
               task.places, task.scores.chosen, task.coins});
  for (int32_t i = 0; task.places != nullptr && i < draft.num_nodes && result.ok(); ++i) {
    result = CheckAddresses("place", {task.places[i].overrides});
  }
  return result;
}

// All counts are back at 0, so the next round could begin at once.
GpuResult FakeGpuDriver::CheckProgress(const FusedRound& round) {
  for (int32_t i = 0; i <= round.num_rows; ++i) {
    if (round.row_arrivals[i] != 0) return GpuResult::Error("arrivals are left behind");
  }
  for (int32_t i = 0; i < round.batch.num_tasks; ++i) {
    const TaskProgress& task = round.progress[i];
    if (task.rows_done != 0 || task.dead != 0 || task.deferred != 0) {
      return GpuResult::Error("the progress of a task is left behind");
    }
  }
  if (*round.fallen.count != 0) return GpuResult::Error("a list of tasks is left behind");
  return GpuResult::Ok();
}

GpuResult FakeGpuDriver::RunBody(const std::function<void(EmulatedThread)>& body) {
  const std::string error =
      RunEmulatedBlocks({.num_threads = gpu_->num_threads,
                         .schedule_seed = static_cast<uint64_t>(gpu_->num_launches),
                         .num_blocks = gpu_->num_blocks},
                        body);
  return error.empty() ? GpuResult::Ok() : GpuResult::Error(error);
}

GpuResult FakeGpuDriver::RunBlocks(
    int32_t num_blocks, int32_t vocab_size, int32_t max_draft, void* workspaces,
    const std::function<void(EmulatedTeam&, const TaskWorkspace&, int32_t)>& body) {
  ++gpu_->num_launches;
  const int64_t bytes = TaskWorkspaceBytes(vocab_size, max_draft);
  for (int32_t i = 0; i < num_blocks; ++i) {
    char* const memory = static_cast<char*>(workspaces) + i * bytes;
    std::memset(memory, kPoison, bytes);
    const TaskWorkspace workspace = TaskWorkspaceAt(memory, vocab_size, max_draft);
    const std::string error = RunEmulatedBlock(
        {.num_threads = gpu_->num_threads, .schedule_seed = static_cast<uint64_t>(i)},
        [&](EmulatedThread thread) {
          EmulatedTeam team(thread);
          body(team, workspace, i);
        });
    if (!error.empty()) return GpuResult::Error(error);
  }
  return GpuResult::Ok();
}

GpuResult FakeGpuDriver::RunFetchPlan(const FetchPlan& plan) {
  GpuResult result = CheckRange("fetch", plan.source, plan.capacity_bytes);
  if (result.ok()) result = CheckRange("fetch", plan.destination, plan.capacity_bytes);
  if (!result.ok()) return result;
  return RunBody([&](const EmulatedThread& thread) { RunFetch(thread, plan); });
}

GpuResult FakeGpuDriver::CheckRound(const FusedRound* at, const RoundBounds& bounds) const {
  const GpuResult result = CheckRange("round", at, sizeof(FusedRound));
  if (!result.ok()) return result;
  const RoundBatch& batch = at->batch;
  if (IsEmpty(*at, bounds)) return result;
  if (batch.num_tasks < 1 || batch.num_tasks > bounds.num_tasks ||
      at->max_draft > bounds.max_draft || batch.target.vocab_size > bounds.vocab_size) {
    return GpuResult::Error("the round is not within the bounds of its launch");
  }
  const GpuResult lists = CheckAddresses("list", {at->fallen.count, at->fallen.tasks});
  if (!lists.ok()) return lists;
  return CheckAddresses(
      "round", {batch.target.data, batch.draft.data, batch.tasks, batch.outcomes, batch.tokens,
                batch.mask.words, batch.scores, batch.samples, at->rows, at->row_arrivals,
                at->progress, at->workspaces, batch.draft_tokens.ids, batch.slots.kept,
                batch.slots.recent, batch.decisions, batch.draft_tree.parents.data,
                batch.draft_tree.next_child.data, batch.draft_tree.next_sibling.data});
}

// Launches that were enqueued before any round was known meet every kind of round. Some rounds are
// empty, because nothing was staged. Others leave nothing to resolve.
bool FakeGpuDriver::IsEmpty(const FusedRound& round, const RoundBounds& bounds) {
  return bounds.usual_tasks > 0 && round.batch.num_tasks == 0 && round.num_rows == 0;
}

GpuResult FakeGpuDriver::RunResolvePlan(const FusedRound* at, const RoundBounds& bounds) {
  GpuResult result = CheckRound(at, bounds);
  if (!result.ok()) return result;
  const int32_t num_tasks = at->batch.num_tasks;
  const ResolvePlan& plan = at->resolve;
  if (IsEmpty(*at, bounds) || (plan.given == nullptr && bounds.usual_tasks > 0)) {
    return RunBody([&](EmulatedThread thread) { RunResolve(thread, *at); });
  }
  if (plan.given == nullptr) return GpuResult::Error("nothing in the round is to be resolved");
  const size_t scratch_bytes =
      num_tasks * ResolveBytes(plan.max_draft, at->batch.slots.recent_room);
  result = CheckRange("list of tasks", plan.given, num_tasks * sizeof(Task));
  if (result.ok()) {
    result = CheckRange("list of resolved tasks", plan.tasks, num_tasks * sizeof(Task));
  }
  if (result.ok()) result = CheckRange("scratch", plan.scratch, scratch_bytes);
  for (int32_t i = 0; i < num_tasks && result.ok(); ++i) result = CheckTask(plan.given[i]);
  if (!result.ok()) return result;
  ++gpu_->num_resolves;
  std::memset(plan.scratch, kPoison, scratch_bytes);
  return RunBody([&](EmulatedThread thread) { RunResolve(thread, *at); });
}

GpuResult FakeGpuDriver::RunRound(const FusedRound* at, const RoundBounds& bounds) {
  GpuResult result = CheckRound(at, bounds);
  if (!result.ok()) return result;
  const FusedRound& round = *at;
  const RoundBatch& batch = round.batch;
  if (IsEmpty(round, bounds)) return RunBodies(round, bounds);
  for (int32_t i = 0; i < batch.num_tasks && result.ok(); ++i) result = CheckTask(batch.tasks[i]);
  if (result.ok()) result = CheckAddresses("list of slot outputs", {batch.slot_outputs});
  for (int32_t i = 0; i < batch.num_slot_outputs && result.ok(); ++i) {
    result = CheckAddresses("slot output", {batch.slot_outputs[i].data});
  }
  if (!result.ok()) return result;
  ++gpu_->num_launches;
  gpu_->now_us += gpu_->round_us;
  std::memset(round.workspaces, kPoison,
              batch.num_tasks * FusedWorkspaceBytes(batch.target.vocab_size, round.max_draft));
  if (round.num_launches > bounds.num_launches) {
    return GpuResult::Error("a task may be left to a launch that does not come");
  }
  if (gpu_->before_round) gpu_->before_round(batch);
  result = RunBodies(round, bounds);
  if (result.ok() && gpu_->after_round) gpu_->after_round(batch);
  if (batch.decisions == nullptr) ForgetTasks(round);
  return result.ok() ? CheckProgress(round) : result;
}

// A round that is not resolved must not find the tasks of an earlier one.
void FakeGpuDriver::ForgetTasks(const FusedRound& round) {
  if (round.resolve.given == nullptr) return;
  std::memset(static_cast<void*>(round.resolve.tasks), kPoison,
              round.batch.num_tasks * sizeof(Task));
}

GpuResult FakeGpuDriver::RunRecordOf(const FusedRound* at, TokenId* tokens,
                                     const RoundBounds& bounds) {
  GpuResult result = CheckRound(at, bounds);
  if (!result.ok()) return result;
  const RoundBatch& batch = at->batch;
  // Where nothing was staged, the last round's address of decisions may still be there.
  const bool records = batch.decisions != nullptr && batch.num_tasks > 0;
  if (records) {
    const auto num_tasks = static_cast<size_t>(batch.num_tasks);
    result = CheckRange("ids of a record", tokens,
                        num_tasks * static_cast<size_t>(batch.tokens_stride) * sizeof(TokenId));
    if (result.ok()) {
      result = CheckRange(
          "decisions", batch.decisions,
          num_tasks * static_cast<size_t>(batch.decisions_stride) * sizeof(PlaceDecision));
    }
    if (!result.ok()) return result;
    ++gpu_->num_records;
  }
  result = RunBody([&](EmulatedThread thread) { RunRecord(thread, *at, tokens); });
  if (records) ForgetTasks(*at);
  return result;
}

GpuResult FakeGpuDriver::RunBodies(const FusedRound& round, const RoundBounds& bounds) {
  GpuResult result = RunBody([&](EmulatedThread thread) { RunFusedRound(thread, round); });
  if (result.ok() && bounds.num_launches >= 2) {
    result = RunBody([&](EmulatedThread thread) { RunResidualPass(thread, round); });
  }
  if (result.ok() && bounds.num_launches == 3) {
    result = RunBody([&](EmulatedThread thread) { RunDeferredTasks(thread, round); });
  }
  return result;
}

GpuResult FakeGpuDriver::CheckPlan(const StagedPlan& plan) const {
  GpuResult result = CheckRange("staging area", plan.areas, plan.num_areas * plan.area_bytes);
  if (result.ok()) {
    result = CheckRange("done word", plan.done, plan.num_areas * sizeof(*plan.done));
  }
  if (result.ok()) result = CheckRange("turn", plan.turn, sizeof(*plan.turn));
  if (result.ok()) result = CheckRange("fetch", plan.destination, plan.area_bytes);
  if (result.ok()) result = CheckRange("round", plan.round, sizeof(*plan.round));
  return result;
}

GpuResult FakeGpuDriver::RunTakeStaged(const StagedPlan& plan) {
  const GpuResult result = CheckPlan(plan);
  if (result.ok()) TakeStaged(HostWords(), plan);
  return result;
}

GpuResult FakeGpuDriver::RunFetchStaged(const StagedPlan& plan) {
  const GpuResult result = CheckPlan(plan);
  if (!result.ok()) return result;
  return RunBody([&](const EmulatedThread& thread) { RunFetch(thread, FetchOfTurn(plan)); });
}

// The end of a turn looks at no other part of the plan.
GpuResult FakeGpuDriver::RunEndStaged(const StagedPlan& plan) {
  GpuResult result = CheckRange("done word", plan.done, plan.num_areas * sizeof(*plan.done));
  if (result.ok()) result = CheckRange("turn", plan.turn, sizeof(*plan.turn));
  if (result.ok()) EndStaged(HostWords(), plan);
  return result;
}

GpuResult FakeGpuDriver::RunTransforms(const TransformBatch& batch, void* workspaces) {
  GpuResult result =
      CheckAddresses("transform", {batch.source.data, batch.rows, batch.statuses, workspaces});
  for (int32_t i = 0; i < batch.num_rows && result.ok(); ++i) {
    result = CheckAddresses("row", {batch.rows[i].out});
  }
  if (!result.ok()) return result;
  return RunBlocks(batch.num_rows, batch.source.vocab_size, 0, workspaces,
                   [&](EmulatedTeam& team, const TaskWorkspace& workspace, int32_t i) {
                     const RowTransform& transform = batch.rows[i];
                     const OutcomeStatus status = TransformRow(
                         team, RowAt(batch.source, transform.row), transform, workspace.target);
                     if (team.leader()) batch.statuses[i] = status;
                   });
}

}  // namespace specd
