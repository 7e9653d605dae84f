#include "tests/gpu/driver/fake_gpu_driver.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

namespace specd {
namespace {

// The calls that are allowed during a capture, besides launches on the CUDA stream that captures.
// Questions about devices and CUDA streams are always allowed.
constexpr std::string_view kAllowedBesideCaptures[] = {
    "ListDevices",    "UseStream",  "Allocate",     "AllocateZeroed", "Free",
    "AllocatePinned", "FreePinned", "DestroyGraph", "Check",          "IsCapturing"};

void* AddPoisoned(size_t size_bytes, FakeGpu::Blocks* blocks) {
  auto block = std::make_unique<std::vector<uint64_t>>((size_bytes + 7) / 8);
  std::memset(block->data(), kPoison, block->size() * 8);
  void* const memory = block->data();
  (*blocks)[memory] = std::move(block);
  return memory;
}

}  // namespace

void FakeGpu::Replay(const std::vector<Work>& work) {
  for (const Work& one : work) {
    if (!fault.ok()) return;
    const GpuResult result = one();
    if (!result.ok()) fault = result;
  }
}

GpuResult FakeGpuDriver::FailureOf(const std::string& name) {
  if (gpu_->failing_call != name || gpu_->failing_after-- > 0) return GpuResult::Ok();
  if (capturing_) spoiled_by_ = name;
  return GpuResult::Error("fake failure of " + name);
}

GpuResult FakeGpuDriver::Call(const std::string& name) {
  const bool is_allowed =
      std::ranges::find(kAllowedBesideCaptures, name) != std::end(kAllowedBesideCaptures);
  if ((gpu_->caller_captures || gpu_->stream_captures) && !is_allowed) {
    if (gpu_->caller_spoiled_by.empty()) gpu_->caller_spoiled_by = name;
    return GpuResult::Error(name + " is not allowed while a stream is capturing");
  }
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
  if (is_after_mark_) {
    after_mark_.push_back(std::move(work));
  } else if (enqueues_on_ != nullptr) {
    if (!may_be_captured) return GpuResult::Error(name + " on a stream that may be capturing");
    gpu_->others_work[enqueues_on_].push_back(std::move(work));
  } else if (capturing_) {
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
  if (first_error_.ok() && gpu_->fault.ok()) first_error_ = work();
}

void FakeGpuDriver::RunPending() {
  for (const FakeGpu::Work& work : pending_) RunNow(work);
  pending_.clear();
  num_marked_ = 0;
}

void FakeGpuDriver::RunAfterMark() {
  const auto end = pending_.begin() + static_cast<ptrdiff_t>(num_marked_);
  std::for_each(pending_.begin(), end, [this](const FakeGpu::Work& work) { RunNow(work); });
  pending_.erase(pending_.begin(), end);
  num_marked_ = 0;
  for (const FakeGpu::Work& work : after_mark_) RunNow(work);
  after_mark_.clear();
}

GpuResult FakeGpuDriver::Mark(void* stream, bool* is_capturing) {
  *is_capturing = stream == gpu_->stream && gpu_->stream_captures;
  const GpuResult result = FailureOf("Mark");
  if (result.ok() && !*is_capturing) gpu_->marked = stream;
  if (result.ok() && !*is_capturing && stream == gpu_->stream) num_marked_ = pending_.size();
  return result;
}

GpuResult FakeGpuDriver::EnqueueAfterMark() {
  const GpuResult result = Call("EnqueueAfterMark");
  is_after_mark_ = result.ok();
  if (!result.ok() || gpu_->before_mark == nullptr || gpu_->marked == gpu_->stream) return result;
  // Without UseStream the driver's own CUDA stream has all its work.
  (gpu_->stream == nullptr ? pending_ : after_mark_).push_back(gpu_->before_mark);
  return result;
}

GpuResult FakeGpuDriver::Synchronize() {
  GpuResult result = Call("Synchronize");
  if (is_after_mark_) {
    RunAfterMark();
  } else {
    RunPending();
  }
  if (result.ok()) result = first_error_;
  if (result.ok()) result = gpu_->fault;
  first_error_ = GpuResult::Ok();
  return result;
}

GpuResult FakeGpuDriver::Check() {
  GpuResult result = Call("Check");
  // A device gets on while somebody looks at it.
  const bool is_idle = gpu_->idle_checks > 0;
  if (is_idle) --gpu_->idle_checks;
  if (result.ok() && !is_idle) RunPending();
  if (result.ok()) result = first_error_;
  return result.ok() ? gpu_->fault : result;
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

GpuResult FakeGpuDriver::FindDevice(void* stream, size_t* device) {
  const auto found = gpu_->devices_of_streams.find(stream);
  *device = found == gpu_->devices_of_streams.end() ? gpu_->used_device : found->second;
  return FailureOf("FindDevice");
}

GpuResult FakeGpuDriver::UseStream(void* stream, size_t* device) {
  gpu_->stream = stream;
  *device = gpu_->stream_device;
  return Call("UseStream");
}

GpuResult FakeGpuDriver::IsCapturing(bool* is_capturing) {
  *is_capturing = gpu_->stream != nullptr && gpu_->stream_captures;
  return Call("IsCapturing");
}

GpuResult FakeGpuDriver::Allocate(size_t size_bytes, void** memory) {
  const GpuResult result = Call("Allocate");
  if (result.ok()) *memory = AddPoisoned(size_bytes, &gpu_->allocations);
  return result;
}

GpuResult FakeGpuDriver::AllocateZeroed(size_t size_bytes, void** memory) {
  GpuResult result = Call("AllocateZeroed");
  if (result.ok()) result = Allocate(size_bytes, memory);
  if (result.ok()) std::memset(*memory, 0, size_bytes);
  return result;
}

GpuResult FakeGpuDriver::Free(void* memory) {
  SPECD_CHECK(gpu_->allocations.erase(memory) == 1);
  return Call("Free");
}

GpuResult FakeGpuDriver::AllocatePinned(size_t size_bytes, void** memory) {
  const GpuResult result = Call("AllocatePinned");
  if (!result.ok()) return result;
  const auto used = gpu_->used_pinned.find((size_bytes + 7) / 8);
  if (used == gpu_->used_pinned.end()) {
    *memory = AddPoisoned(size_bytes, &gpu_->pinned);
  } else {
    *memory = used->second->data();
    gpu_->pinned[*memory] = std::move(used->second);
    gpu_->used_pinned.erase(used);
  }
  return result;
}

GpuResult FakeGpuDriver::FreePinned(void* memory) {
  const auto block = gpu_->pinned.extract(memory);
  SPECD_CHECK(!block.empty());
  if (gpu_->reuses_pinned) {
    gpu_->used_pinned.emplace(block.mapped()->size(), std::move(block.mapped()));
  }
  return Call("FreePinned");
}

GpuResult FakeGpuDriver::ToDevice(void* device, const void* host, size_t size_bytes) {
  return Enqueue("ToDevice", false, [=, this] {
    if (IsDeviceMemory(host)) return GpuResult::Error("ToDevice from device memory");
    const bool is_other = gpu_->is_on_other_device != nullptr && gpu_->is_on_other_device(device);
    if (is_other) gpu_->copied_to_other_device.insert(device);
    const bool is_others = gpu_->is_imported != nullptr && gpu_->is_imported(device) &&
                           gpu_->is_imported(static_cast<const char*>(device) + size_bytes - 1);
    const GpuResult result =
        is_other || is_others ? GpuResult::Ok() : CheckRange("copy", device, size_bytes);
    if (result.ok()) std::memcpy(device, host, size_bytes);
    return result;
  });
}

GpuResult FakeGpuDriver::ToHost(void* host, const void* device, size_t size_bytes) {
  return Enqueue("ToHost", false, [=, this] {
    if (IsDeviceMemory(host)) return GpuResult::Error("ToHost to device memory");
    const bool is_others = gpu_->is_imported != nullptr && gpu_->is_imported(device) &&
                           gpu_->is_imported(static_cast<const char*>(device) + size_bytes - 1);
    const GpuResult result = is_others ? GpuResult::Ok() : CheckRange("copy", device, size_bytes);
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
  if (gpu_->fails_late) {
    gpu_->fails_late = false;
    const GpuResult launched = LaunchGraph(graph);
    return launched.ok() ? GpuResult::Error("fake failure behind LaunchGraph") : launched;
  }
  return Enqueue("LaunchGraph", false, [=, this] {
    const auto found = gpu_->graphs.find(graph);
    if (found == gpu_->graphs.end()) return GpuResult::Error("there is no such graph");
    GpuResult result = GpuResult::Ok();
    for (const FakeGpu::Work& work : *found->second) {
      if (result.ok()) result = work();
      if (result.ok()) result = gpu_->fault;
      if (result.ok() && gpu_->after_node) gpu_->after_node();
    }
    return result;
  });
}

GpuResult FakeGpuDriver::DestroyGraph(Graph* graph) {
  if (graph != nullptr) SPECD_CHECK(gpu_->graphs.erase(graph) == 1);
  return Call("DestroyGraph");
}

GpuResult FakeGpuDriver::LaunchFetch(const FetchPlan& plan) {
  return Enqueue("LaunchFetch", true, [=, this] { return RunFetchPlan(plan); });
}
GpuResult FakeGpuDriver::LaunchResolve(const FusedRound* round, const RoundBounds& bounds) {
  return Enqueue("LaunchResolve", true, [=, this] { return RunResolvePlan(round, bounds); });
}
GpuResult FakeGpuDriver::LaunchRound(const FusedRound* round, const RoundBounds& bounds) {
  return Enqueue("LaunchRound", true, [=, this] { return RunRound(round, bounds); });
}
GpuResult FakeGpuDriver::LaunchRecord(const FusedRound* round, TokenId* tokens,
                                      const RoundBounds& bounds) {
  return Enqueue("LaunchRecord", true, [=, this] { return RunRecordOf(round, tokens, bounds); });
}
GpuResult FakeGpuDriver::LaunchTakeStaged(const StagedPlan& plan) {
  const GpuResult result =
      Enqueue("LaunchTakeStaged", true, [=, this] { return RunTakeStaged(plan); });
  if (!result.ok()) return result;
  return Enqueue("LaunchFetchStaged", true, [=, this] { return RunFetchStaged(plan); });
}
GpuResult FakeGpuDriver::LaunchEndStaged(const StagedPlan& plan) {
  gpu_->done_word = plan.done;
  return Enqueue("LaunchEndStaged", true, [=, this] { return RunEndStaged(plan); });
}
GpuResult FakeGpuDriver::LaunchTransforms(const TransformBatch& batch, void* workspaces) {
  return Enqueue("LaunchTransforms", true, [=, this] { return RunTransforms(batch, workspaces); });
}

}  // namespace specd
