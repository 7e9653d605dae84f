// CudaBackend: rounds on a GPU over rows that lie in host memory.
//
// The rows that a round names are copied to the device, one block verifies one sequence with the
// same bodies as on the CPU, and the outcomes are copied back. A round whose rows need more than
// the staging memory is done in pieces; results do not depend on the cut. Everything goes through
// GpuDriver, so this file knows nothing of CUDA's API and runs in tests over host memory.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/gpu_driver.h"

namespace specd {

// Owns one block of device memory. The driver must live longer.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { Release(); }

  // What was held before is given back first.
  GpuResult Allocate(GpuDriver* driver, size_t size_bytes);

  GpuDriver* driver() const { return driver_; }
  void* get() const { return memory_; }

 private:
  void Release();

  GpuDriver* driver_ = nullptr;
  void* memory_ = nullptr;
};

// An array that exists on both sides.
template <typename T>
class MirroredArray {
 public:
  GpuResult Resize(GpuDriver* driver, size_t count) {
    host_.assign(count, T{});
    return memory_.Allocate(driver, count * sizeof(T));
  }

  T* host() { return host_.data(); }
  T* device() const { return static_cast<T*>(memory_.get()); }
  GpuResult ToDevice(size_t count) {
    if (count == 0) return GpuResult::Ok();
    return memory_.driver()->ToDevice(device(), host(), count * sizeof(T));
  }
  GpuResult ToHost(size_t count) {
    return memory_.driver()->ToHost(host(), device(), count * sizeof(T));
  }

 private:
  std::vector<T> host_;
  DeviceMemory memory_;
};

// Device memory for rows, filled from anywhere in host memory.
class RowStage {
 public:
  GpuResult Resize(GpuDriver* driver, size_t size_bytes) {
    return memory_.Allocate(driver, size_bytes);
  }

  // Begins a new piece with rows like those of `source`.
  void Begin(const TensorView& source);
  // Enqueues the copy of a row and says which row of view() it becomes.
  GpuResult Append(uint32_t source_row, uint32_t* row);
  TensorView view() const;

 private:
  DeviceMemory memory_;
  TensorView source_;
  int64_t num_rows_ = 0;
};

class CudaBackend final : public Backend {
 public:
  // REQUIRES: UseDevice succeeded on the driver. Pieces are cut so that they need at most
  // `staging_bytes`, but never below one sequence.
  CudaBackend(std::unique_ptr<GpuDriver> driver, int64_t staging_bytes);

  std::string_view name() const override { return "cuda"; }
  absl::Status Prepare(const BackendLimits& limits) override;
  absl::Status Run(const RoundBatch& batch) override;

 private:
  GpuResult Allocate();
  GpuResult RunPiece(const RoundBatch& batch, int32_t first, int32_t count);
  GpuResult Stage(const ChainTask& task, int32_t slot);

  const std::unique_ptr<GpuDriver> driver_;  // outlives the memory below
  const int64_t staging_bytes_;
  BackendLimits limits_;
  int32_t max_piece_ = 0;  // sequences

  RowStage target_;
  RowStage draft_;
  // Slot s of a piece owns max_draft entries (target rows and tokens: one more) from s times that.
  MirroredArray<ChainTask> tasks_;
  MirroredArray<TokenId> draft_tokens_;
  MirroredArray<DraftKind> kinds_;
  MirroredArray<uint32_t> target_rows_;
  MirroredArray<uint32_t> draft_rows_;
  MirroredArray<ChainOutcome> outcomes_;
  MirroredArray<TokenId> tokens_;
};

// Takes the first device. FAILED_PRECONDITION where there is no driver or no device.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<GpuDriver> driver);

}  // namespace specd
