// DeviceSlots holds the arrays by slot in device memory for tests that run rounds on a device. Not
// thread-safe.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "kernels/core/gpu_driver.h"
#include "kernels/cuda/upload_arena.h"
#include "tests/kernels/warps/open_rounds.h"

namespace specd {

class DeviceSlots {
 public:
  // REQUIRES: UseDevice succeeded on the driver, for the device of the backend that runs the
  // rounds.
  DeviceSlots(GpuDriver* driver, const RoundCase::Options& options, MemorySpace drafts_space)
      : driver_(driver), drafts_space_(drafts_space) {
    // Rounds on the host begin with the same poison.
    const SlotMemory memory(options);
    Upload(memory.kept, &kept_);
    Upload(memory.recent, &recent_);
    num_drafts_ = memory.drafts.size();
    Check(drafts_.Allocate(driver_, num_drafts_ * sizeof(TokenId)));
  }

  // Moves a batch of the host to the device. If draft tokens belong to host memory, they stay
  // there.
  RoundBatch Bring(RoundBatch batch) {
    batch.slots.kept = reinterpret_cast<uint32_t*>(kept_.get());
    batch.slots.recent = reinterpret_cast<TokenId*>(recent_.get());
    // Trees in host memory are the host's own, before a round is made.
    Bring(&batch.draft_tree.parents, 0);
    Bring(&batch.draft_tree.next_child, 1);
    Bring(&batch.draft_tree.next_sibling, 2);
    if (drafts_space_ == MemorySpace::kHost || batch.draft_tokens.ids == nullptr) return batch;
    Check(driver_->ToDevice(drafts_.get(), batch.draft_tokens.ids, num_drafts_ * sizeof(TokenId)));
    Check(driver_->Synchronize());
    batch.draft_tokens.ids = reinterpret_cast<const TokenId*>(drafts_.get());
    batch.draft_tokens.space = MemorySpace::kDevice;
    return batch;
  }

  // A processor that runs rounds by a backend, which the caller keeps. Slot outputs lie on the
  // device: the host does not know where a task that continues begins.
  RoundProcessor By(Backend* backend) {
    return {drafts_space_ == MemorySpace::kHost ? "draft tokens on the host"
                                                : "draft tokens on the device",
            [this, backend](RoundCase& round, const RoundBatch& batch) {
              std::array<DeviceMemory, RoundCase::kNumSlotOutputs> memories;
              std::array<SlotOutput, RoundCase::kNumSlotOutputs> outputs;
              REQUIRE(batch.num_slot_outputs == RoundCase::kNumSlotOutputs);
              for (int32_t i = 0; i < batch.num_slot_outputs; ++i) {
                Upload(round.slot_memory(i), &memories[i]);
                outputs[i] = batch.slot_outputs[i];
                outputs[i].data = memories[i].get();
                outputs[i].space = MemorySpace::kDevice;
              }
              RoundBatch brought = Bring(batch);
              brought.slot_outputs = outputs.data();
              const absl::Status status = backend->Run(brought);
              REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
              for (int32_t i = 0; i < batch.num_slot_outputs; ++i) {
                Check(driver_->ToHost(batch.slot_outputs[i].data, memories[i].get(),
                                      round.slot_memory(i).size() * sizeof(TokenId)));
              }
              Check(driver_->Synchronize());
              return AnswersOf(round, batch.num_tasks);
            }};
  }

 private:
  void Bring(NodeRows* rows, size_t index) {
    if (rows->data == nullptr) return;
    const size_t num_rows = num_drafts_ / static_cast<size_t>(rows->row_stride);
    const size_t num_bytes = num_rows * static_cast<size_t>(rows->row_stride) *
                             (rows->is_wide ? sizeof(int64_t) : sizeof(int32_t));
    DeviceMemory& memory = trees_[index];
    Check(memory.Allocate(driver_, num_bytes));
    Check(driver_->ToDevice(memory.get(), rows->data, num_bytes));
    Check(driver_->Synchronize());
    rows->data = memory.get();
    rows->space = MemorySpace::kDevice;
  }

  static void Check(const GpuResult& result) { REQUIRE_MESSAGE(result.ok(), result.text()); }

  template <typename T>
  void Upload(const std::vector<T>& values, DeviceMemory* memory) {
    Check(memory->Allocate(driver_, values.size() * sizeof(T)));
    Check(driver_->ToDevice(memory->get(), values.data(), values.size() * sizeof(T)));
    Check(driver_->Synchronize());
  }

  GpuDriver* driver_;
  MemorySpace drafts_space_;
  size_t num_drafts_ = 0;
  DeviceMemory kept_;
  DeviceMemory recent_;
  DeviceMemory drafts_;
  std::array<DeviceMemory, 3> trees_;
};

}  // namespace specd
