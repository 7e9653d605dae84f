#include "tests/support/fake_gpu_driver.h"

#include <spdlog/fmt/fmt.h>

#include <cstring>
#include <utility>

#include "kernels/bodies/fetch.h"
#include "kernels/bodies/fused_round.h"
#include "kernels/bodies/transform.h"

namespace specd {
namespace {

void* AddPoisoned(size_t size_bytes, FakeGpu::Blocks* blocks) {
  auto block = std::make_unique<std::vector<uint64_t>>((size_bytes + 7) / 8);
  std::memset(block->data(), kPoison, block->size() * 8);
  void* const memory = block->data();
  (*blocks)[memory] = std::move(block);
  return memory;
}

bool Holds(const FakeGpu::Blocks& blocks, const void* begin, size_t size_bytes) {
  const auto after = blocks.upper_bound(const_cast<void*>(begin));
  if (after == blocks.begin()) return false;
  const std::vector<uint64_t>& block = *std::prev(after)->second;
  const auto offset = static_cast<const char*>(begin) - reinterpret_cast<const char*>(block.data());
  return static_cast<size_t>(offset) + size_bytes <= block.size() * 8;
}

}  // namespace

GpuResult FakeGpuDriver::FailureOf(const std::string& name) {
  if (gpu_->failing_call != name || gpu_->failing_after-- > 0) return GpuResult::Ok();
  if (capturing_) spoiled_by_ = name;
  return GpuResult::Error("fake failure of " + name);
}

GpuResult FakeGpuDriver::Call(const std::string& name) {
  if (capturing_) {
    spoiled_by_ = name;
    return GpuResult::Error(name + " is not allowed in a capture");
  }
  return FailureOf(name);
}

GpuResult FakeGpuDriver::Enqueue(const std::string& name, bool may_be_captured,
                                 FakeGpu::Work work) {
  GpuResult result = may_be_captured ? FailureOf(name) : Call(name);
  if (!result.ok()) return result;
  if (capturing_) {
    captured_.push_back(std::move(work));
  } else if (gpu_->runs_at_once) {
    RunNow(work);
  } else {
    pending_.push_back(std::move(work));
  }
  return result;
}

// Nothing runs after an error, as on a device.
void FakeGpuDriver::RunNow(const FakeGpu::Work& work) {
  if (first_error_.ok()) first_error_ = work();
}

GpuResult FakeGpuDriver::Synchronize() {
  GpuResult result = Call("Synchronize");
  for (const FakeGpu::Work& work : pending_) RunNow(work);
  pending_.clear();
  if (result.ok()) result = first_error_;
  first_error_ = GpuResult::Ok();
  return result;
}

GpuResult FakeGpuDriver::ListDevices(std::vector<GpuDevice>* devices) {
  *devices = gpu_->devices;
  return Call("ListDevices");
}

GpuResult FakeGpuDriver::UseDevice(size_t index) {
  SPECD_CHECK(index < gpu_->devices.size());
  gpu_->used_device = index;
  return Call("UseDevice");
}

GpuResult FakeGpuDriver::UseStream(void* stream, size_t* device) {
  gpu_->stream = stream;
  *device = gpu_->stream_device;
  return Call("UseStream");
}

GpuResult FakeGpuDriver::Allocate(size_t size_bytes, void** memory) {
  const GpuResult result = Call("Allocate");
  if (result.ok()) *memory = AddPoisoned(size_bytes, &gpu_->allocations);
  return result;
}

GpuResult FakeGpuDriver::Free(void* memory) {
  SPECD_CHECK(gpu_->allocations.erase(memory) == 1);
  return Call("Free");
}

GpuResult FakeGpuDriver::AllocatePinned(size_t size_bytes, void** memory) {
  const GpuResult result = Call("AllocatePinned");
  if (result.ok()) *memory = AddPoisoned(size_bytes, &gpu_->pinned);
  return result;
}

GpuResult FakeGpuDriver::FreePinned(void* memory) {
  SPECD_CHECK(gpu_->pinned.erase(memory) == 1);
  return Call("FreePinned");
}

GpuResult FakeGpuDriver::ToDevice(void* device, const void* host, size_t size_bytes) {
  return Enqueue("ToDevice", false, [=, this] {
    if (IsDeviceMemory(host)) return GpuResult::Error("ToDevice from device memory");
    const bool is_other = gpu_->is_on_other_device != nullptr && gpu_->is_on_other_device(device);
    if (is_other) gpu_->copied_to_other_device.insert(device);
    const GpuResult result = is_other ? GpuResult::Ok() : CheckRange("copy", device, size_bytes);
    if (result.ok()) std::memcpy(device, host, size_bytes);
    return result;
  });
}

GpuResult FakeGpuDriver::ToHost(void* host, const void* device, size_t size_bytes) {
  return Enqueue("ToHost", false, [=, this] {
    const GpuResult result = CheckRange("copy", device, size_bytes);
    if (result.ok()) std::memcpy(host, device, size_bytes);
    return result;
  });
}

GpuResult FakeGpuDriver::BeginCapture() {
  const GpuResult result = Call("BeginCapture");
  if (!result.ok()) return result;
  capturing_ = true;
  spoiled_by_.clear();
  captured_.clear();
  return result;
}

GpuResult FakeGpuDriver::EndCapture(Graph** graph) {
  SPECD_CHECK(capturing_);
  capturing_ = false;
  *graph = nullptr;
  const GpuResult result = Call("EndCapture");
  if (!result.ok()) return result;
  if (!spoiled_by_.empty()) return GpuResult::Error("the capture was spoiled by " + spoiled_by_);
  auto made = std::make_unique<std::vector<FakeGpu::Work>>(std::move(captured_));
  *graph = reinterpret_cast<Graph*>(made.get());
  gpu_->graphs[*graph] = std::move(made);
  return result;
}

GpuResult FakeGpuDriver::LaunchGraph(Graph* graph) {
  ++gpu_->num_graph_launches;
  return Enqueue("LaunchGraph", false, [=, this] {
    const auto found = gpu_->graphs.find(graph);
    if (found == gpu_->graphs.end()) return GpuResult::Error("there is no such graph");
    GpuResult result = GpuResult::Ok();
    for (const FakeGpu::Work& work : *found->second) {
      if (result.ok()) result = work();
    }
    return result;
  });
}

GpuResult FakeGpuDriver::DestroyGraph(Graph* graph) {
  if (graph != nullptr) SPECD_CHECK(gpu_->graphs.erase(graph) == 1);
  return Call("DestroyGraph");
}

GpuResult FakeGpuDriver::CreateEvent(Event** event) {
  const GpuResult result = Call("CreateEvent");
  if (!result.ok()) return result;
  auto made = std::make_unique<double>(-1);
  *event = reinterpret_cast<Event*>(made.get());
  gpu_->events[*event] = std::move(made);
  return result;
}

GpuResult FakeGpuDriver::DestroyEvent(Event* event) {
  SPECD_CHECK(gpu_->events.erase(event) == 1);
  return Call("DestroyEvent");
}

GpuResult FakeGpuDriver::RecordEvent(Event* event) {
  return Enqueue("RecordEvent", true, [=, this] {
    *gpu_->events.at(event) = gpu_->now_us;
    return GpuResult::Ok();
  });
}

GpuResult FakeGpuDriver::ElapsedUs(Event* start, Event* end, double* elapsed_us) {
  const double from = *gpu_->events.at(start);
  const double to = *gpu_->events.at(end);
  if (from < 0 || to < 0) return GpuResult::Error("the event was not recorded");
  *elapsed_us = to - from;
  return Call("ElapsedUs");
}

GpuResult FakeGpuDriver::LaunchFetch(const FetchPlan& plan) {
  return Enqueue("LaunchFetch", true, [=, this] { return RunFetchPlan(plan); });
}
GpuResult FakeGpuDriver::LaunchRound(const FusedRound* round, const RoundBounds& bounds) {
  return Enqueue("LaunchRound", true, [=, this] { return RunRound(round, bounds); });
}
GpuResult FakeGpuDriver::LaunchTransforms(const TransformBatch& batch, void* workspaces) {
  return Enqueue("LaunchTransforms", true, [=, this] { return RunTransforms(batch, workspaces); });
}
GpuResult FakeGpuDriver::LaunchRead(const ReadPlan& plan) {
  return Enqueue("LaunchRead", true, [=, this] { return RunRead(plan); });
}
GpuResult FakeGpuDriver::LaunchWeights(const WeighPlan& plan) {
  return Enqueue("LaunchWeights", true, [=, this] { return RunWeights(plan); });
}

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

GpuResult FakeGpuDriver::CheckTask(const ChainTask& task) const {
  const DraftChain& chain = task.chain;
  GpuResult result = CheckAddresses(
      "task", {chain.tokens, chain.kinds, chain.target_rows, chain.draft_rows, chain.draft_weights,
               chain.draft_masses, chain.target_argmax, task.edits.edits, task.edits.allowed,
               task.places, task.scores.chosen, task.coins});
  for (int32_t i = 0; task.places != nullptr && i < chain.num_drafts && result.ok(); ++i) {
    result = CheckAddresses("place", {task.places[i].overrides});
  }
  return result;
}

// What counts is as it was, so that the next round could begin at once.
GpuResult FakeGpuDriver::CheckProgress(const FusedRound& round) {
  for (int32_t i = 0; i < round.num_rows; ++i) {
    if (round.row_arrivals[i] != 0) return GpuResult::Error("arrivals are left behind");
  }
  for (int32_t i = 0; i < round.batch.num_tasks; ++i) {
    const TaskProgress& task = round.progress[i];
    if (task.rows_done != 0 || task.end_seen != 0 || task.deferred != 0) {
      return GpuResult::Error("the progress of a task is left behind");
    }
  }
  return GpuResult::Ok();
}

std::string FakeGpuDriver::RunLaunch(const std::function<void(EmulatedThread)>& body) {
  return RunEmulatedBlocks({.num_threads = gpu_->num_threads,
                            .schedule_seed = static_cast<uint64_t>(gpu_->num_launches),
                            .num_blocks = gpu_->num_blocks},
                           body);
}

GpuResult FakeGpuDriver::RunBlocks(
    int32_t num_blocks, int32_t vocab_size, int32_t max_draft, void* workspaces,
    const std::function<void(EmulatedTeam&, const ChainWorkspace&, int32_t)>& body) {
  ++gpu_->num_launches;
  const int64_t bytes = ChainWorkspaceBytes(vocab_size, max_draft);
  for (int32_t i = 0; i < num_blocks; ++i) {
    char* const memory = static_cast<char*>(workspaces) + i * bytes;
    std::memset(memory, kPoison, bytes);
    const ChainWorkspace workspace = ChainWorkspaceAt(memory, vocab_size, max_draft);
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
  const std::string error =
      RunLaunch([&](const EmulatedThread& thread) { RunFetch(thread, plan); });
  return error.empty() ? GpuResult::Ok() : GpuResult::Error(error);
}

GpuResult FakeGpuDriver::RunRound(const FusedRound* at, const RoundBounds& bounds) {
  GpuResult result = CheckRange("round", at, sizeof(FusedRound));
  if (!result.ok()) return result;
  const FusedRound& round = *at;
  const RoundBatch& batch = round.batch;
  if (batch.num_tasks < 1 || batch.num_tasks > bounds.num_tasks ||
      round.max_draft > bounds.max_draft || batch.target.vocab_size > bounds.vocab_size) {
    return GpuResult::Error("the round is not within the bounds of its launch");
  }
  result =
      CheckAddresses("round", {batch.target.data, batch.draft.data, batch.tasks, batch.outcomes,
                               batch.tokens, batch.mask.words, batch.scores, batch.samples,
                               round.rows, round.row_arrivals, round.progress, round.workspaces});
  for (int32_t i = 0; i < batch.num_tasks && result.ok(); ++i) result = CheckTask(batch.tasks[i]);
  if (result.ok()) result = CheckAddresses("list of next tokens", {batch.next_tokens});
  for (int32_t i = 0; i < batch.num_next_tokens && result.ok(); ++i) {
    result = CheckAddresses("replica of next tokens", {batch.next_tokens[i].ids});
  }
  if (!result.ok()) return result;
  ++gpu_->num_launches;
  gpu_->now_us += gpu_->round_us;
  std::memset(round.workspaces, kPoison,
              batch.num_tasks * FusedWorkspaceBytes(batch.target.vocab_size, round.max_draft));
  if (round.may_defer && !bounds.may_defer) {
    return GpuResult::Error("a task may be deferred, and nobody would decide it");
  }
  std::string error = RunLaunch([&](EmulatedThread thread) { RunFusedRound(thread, round); });
  if (error.empty() && bounds.may_defer) {
    error = RunLaunch([&](EmulatedThread thread) { RunDeferredTasks(thread, round); });
  }
  if (error.empty() && gpu_->after_round) gpu_->after_round(batch);
  return error.empty() ? CheckProgress(round) : GpuResult::Error(error);
}

GpuResult FakeGpuDriver::RunTransforms(const TransformBatch& batch, void* workspaces) {
  GpuResult result =
      CheckAddresses("transform", {batch.source.data, batch.rows, batch.statuses, workspaces});
  for (int32_t i = 0; i < batch.num_rows && result.ok(); ++i) {
    result = CheckAddresses("row", {batch.rows[i].out});
  }
  if (!result.ok()) return result;
  return RunBlocks(batch.num_rows, batch.source.vocab_size, 0, workspaces,
                   [&](EmulatedTeam& team, const ChainWorkspace& workspace, int32_t i) {
                     const RowTransform& transform = batch.rows[i];
                     const OutcomeStatus status = TransformRow(
                         team, RowAt(batch.source, transform.row), transform, workspace.target);
                     if (team.leader()) batch.statuses[i] = status;
                   });
}

GpuResult FakeGpuDriver::RunRead(const ReadPlan& plan) {
  GpuResult result = CheckRange("read", plan.rows, sizeof(void*) * plan.num_rows);
  if (result.ok()) result = CheckRange("sink", plan.sink, sizeof(*plan.sink));
  for (int32_t i = 0; i < plan.num_rows && result.ok(); ++i) {
    result = CheckRange("row", plan.rows[i], static_cast<size_t>(plan.row_bytes));
  }
  gpu_->now_us += gpu_->read_us;
  return result;
}

// The two differ in nothing but their time: their sums are nobody's.
GpuResult FakeGpuDriver::RunWeights(const WeighPlan& plan) {
  GpuResult result = CheckRange("weights", plan.rows, sizeof(void*) * plan.num_rows);
  const int64_t slots_bytes = plan.num_rows * AheadSlotBytes(plan.vocab_size);
  if (result.ok()) {
    result = CheckRange("workspace", plan.workspaces, static_cast<size_t>(slots_bytes));
  }
  for (int32_t i = 0; i < plan.num_rows && result.ok(); ++i) {
    const int64_t row_bytes = plan.vocab_size * SizeBytes(plan.dtype);
    result = CheckRange("row", plan.rows[i], static_cast<size_t>(row_bytes));
  }
  gpu_->now_us += plan.approximate ? gpu_->approximate_us : gpu_->weights_us;
  return result;
}

}  // namespace specd
