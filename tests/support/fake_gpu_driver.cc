#include "tests/support/fake_gpu_driver.h"

#include <spdlog/fmt/fmt.h>

#include <cstring>

#include "kernels/bodies/fused_round.h"
#include "kernels/bodies/transform.h"

namespace specd {

GpuResult FakeGpuDriver::Call(const std::string& name) {
  if (gpu_->failing_call != name || gpu_->failing_after-- > 0) return GpuResult::Ok();
  return GpuResult::Error("fake failure of " + name);
}

GpuResult FakeGpuDriver::ListDevices(std::vector<GpuDevice>* devices) {
  *devices = gpu_->devices;
  return Call("ListDevices");
}

GpuResult FakeGpuDriver::UseDevice(size_t index) {
  SPECD_CHECK(index < gpu_->devices.size());
  return Call("UseDevice");
}

GpuResult FakeGpuDriver::Allocate(size_t size_bytes, void** memory) {
  GpuResult result = Call("Allocate");
  if (!result.ok()) return result;
  auto block = std::make_unique<std::vector<uint64_t>>((size_bytes + 7) / 8);
  std::memset(block->data(), kPoison, block->size() * 8);
  *memory = block->data();
  gpu_->allocations[*memory] = std::move(block);
  return result;
}

GpuResult FakeGpuDriver::Free(void* memory) {
  SPECD_CHECK(gpu_->allocations.erase(memory) == 1);
  return Call("Free");
}

GpuResult FakeGpuDriver::ToDevice(void* device, const void* host, size_t size_bytes) {
  if (IsDeviceMemory(host)) return GpuResult::Error("ToDevice from device memory");
  std::memcpy(device, host, size_bytes);
  return Call("ToDevice");
}

GpuResult FakeGpuDriver::ToHost(void* host, const void* device, size_t size_bytes) {
  pending_.push_back([=] { std::memcpy(host, device, size_bytes); });
  return Call("ToHost");
}

bool FakeGpuDriver::IsDeviceMemory(const void* address) const {
  const auto after = gpu_->allocations.upper_bound(const_cast<void*>(address));
  if (after != gpu_->allocations.begin()) {
    const std::vector<uint64_t>& block = *std::prev(after)->second;
    if (address <= block.data() + block.size()) return true;
  }
  return gpu_->is_imported != nullptr && gpu_->is_imported(address);
}

GpuResult FakeGpuDriver::CheckAddresses(const char* what,
                                        std::initializer_list<const void*> addresses) const {
  for (const void* const address : addresses) {
    if (address == nullptr || IsDeviceMemory(address)) continue;
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

GpuResult FakeGpuDriver::LaunchRound(const FusedRound& round) {
  const RoundBatch& batch = round.batch;
  GpuResult result = Call("LaunchRound");
  if (result.ok()) {
    result = CheckAddresses("round", {batch.target.data, batch.draft.data, batch.tasks,
                                      batch.outcomes, batch.tokens, batch.mask.words, batch.scores,
                                      batch.samples, round.rows, round.arrivals, round.workspaces});
  }
  for (int32_t i = 0; i < batch.num_tasks && result.ok(); ++i) result = CheckTask(batch.tasks[i]);
  if (result.ok()) result = CheckAddresses("list of next tokens", {batch.next_tokens});
  for (int32_t i = 0; i < batch.num_next_tokens && result.ok(); ++i) {
    result = CheckAddresses("replica of next tokens", {batch.next_tokens[i].ids});
  }
  if (!result.ok()) return result;
  ++gpu_->num_launches;
  std::memset(round.workspaces, kPoison,
              batch.num_tasks * FusedWorkspaceBytes(batch.target.vocab_size, round.max_draft));
  const std::string error =
      RunEmulatedBlocks({.num_threads = gpu_->num_threads,
                         .schedule_seed = static_cast<uint64_t>(gpu_->num_launches),
                         .num_blocks = gpu_->num_blocks},
                        [&](EmulatedThread thread) { RunFusedRound(thread, round); });
  if (!error.empty()) return GpuResult::Error(error);
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    if (round.arrivals[i] != 0) return GpuResult::Error("arrivals are left behind");
  }
  if (gpu_->on_launch != nullptr) gpu_->on_launch();
  return GpuResult::Ok();
}

GpuResult FakeGpuDriver::LaunchTransforms(const TransformBatch& batch, void* workspaces) {
  GpuResult result = Call("LaunchTransforms");
  if (result.ok()) {
    result =
        CheckAddresses("transform", {batch.source.data, batch.rows, batch.statuses, workspaces});
  }
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

GpuResult FakeGpuDriver::Synchronize() {
  for (const auto& copy : pending_) copy();
  pending_.clear();
  return Call("Synchronize");
}

}  // namespace specd
