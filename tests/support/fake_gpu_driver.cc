#include "tests/support/fake_gpu_driver.h"

#include <cstring>

#include "kernels/bodies/verify.h"
#include "tests/support/emulated_block.h"

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
  std::memcpy(device, host, size_bytes);
  return Call("ToDevice");
}

GpuResult FakeGpuDriver::ToHost(void* host, const void* device, size_t size_bytes) {
  pending_.push_back([=] { std::memcpy(host, device, size_bytes); });
  return Call("ToHost");
}

GpuResult FakeGpuDriver::LaunchChains(const RoundBatch& batch) {
  GpuResult result = Call("LaunchChains");
  if (!result.ok()) return result;
  ++gpu_->num_launches;
  std::vector<uint64_t> shared(ChainWorkspaceBytes(batch.target.vocab_size) / 8);
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    std::memset(shared.data(), kPoison, shared.size() * 8);
    const ChainTask& task = batch.tasks[i];
    const std::string error = RunEmulatedBlock(
        {.num_threads = gpu_->num_threads, .schedule_seed = static_cast<uint64_t>(i)},
        [&](EmulatedThread thread) {
          EmulatedTeam team(thread);
          const ChainOutcome outcome =
              VerifyChain(team, task, batch.target, batch.draft,
                          ChainWorkspaceAt(shared.data(), batch.target.vocab_size),
                          KeyedCoins(task.seed), batch.tokens + int64_t{i} * batch.tokens_stride);
          if (team.leader()) batch.outcomes[i] = outcome;
        });
    if (!error.empty()) return GpuResult::Error(error);
  }
  return result;
}

GpuResult FakeGpuDriver::Synchronize() {
  for (const auto& copy : pending_) copy();
  pending_.clear();
  return Call("Synchronize");
}

}  // namespace specd
