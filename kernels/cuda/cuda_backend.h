// CudaBackend: rounds on a GPU.
//
// Rows in the memory of the device are read where they lie. Of host memory the rows that a round
// names are copied to the device; then one launch of a graph, captured by Prepare for the round's
// batch bucket (a power of two), brings the tasks there, runs them with the same bodies as on the
// CPU, and says in a word of pinned memory, at which the host looks, that it is over. A round that
// needs more than the staging memory is done in pieces; results do not depend on the cut. Staged
// rounds are RoundQueue's, with memory of their own. Everything goes through GpuDriver, so this
// file knows nothing of CUDA's API and runs in tests over host memory.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/gpu_driver.h"
#include "kernels/cuda/captured_graph.h"
#include "kernels/cuda/done_word.h"
#include "kernels/cuda/round_queue.h"
#include "kernels/cuda/staged_batch.h"
#include "kernels/cuda/staging.h"

namespace specd {

class CudaBackend final : public Backend {
 public:
  // REQUIRES: UseDevice succeeded on the driver. Pieces are cut so that their rows need at most
  // `staging_bytes`, but never below one sequence. `device_uuid` is that of the device in use.
  CudaBackend(std::unique_ptr<GpuDriver> driver, int64_t staging_bytes,
              std::string device_uuid = {});

  std::string_view name() const override { return "cuda"; }
  std::string_view device_uuid() const override { return device_uuid_; }
  absl::Status Prepare(const BackendLimits& limits) override;
  absl::Status Run(const RoundBatch& batch) override;
  absl::Status WriteNextTokens(const RoundBatch& batch) override;
  absl::Status EnqueueStaged(void* stream, int32_t num_tasks) override;
  absl::Status Stage(const RoundBatch& batch) override;
  absl::StatusOr<bool> Collect() override;
  absl::Status Transform(const TransformBatch& batch) override;

 private:
  // What runs rounds up to a number of tasks: for each GraphKind the launches that it needs.
  struct GraphKind {
    int32_t num_launches = 1;  // FusedRound::num_launches
    bool resolves = false;
    size_t index() const { return static_cast<size_t>(num_launches - 1 + (resolves ? 3 : 0)); }
  };
  using Bucket = std::array<CapturedGraph, 6>;

  int64_t row_bytes() const { return limits_.vocab_size * SizeBytes(DType::kFloat32); }
  int32_t num_places() const { return limits_.max_draft + 1; }

  void CheckLimits(const RoundBatch& batch) const;
  GpuResult Allocate();
  GpuResult CaptureBuckets();
  GpuResult CaptureGraph(int32_t num_tasks, GraphKind kind, CapturedGraph* graph);
  const Bucket& BucketFor(int32_t num_tasks) const;
  StagedBatch BeginPiece(const RoundBatch& batch, int32_t first);
  GpuResult LaunchPiece(const StagedBatch& piece);
  GpuResult FinishPiece(const StagedBatch& piece);
  // Of tasks whose answers have come back, to those arrays that no kernel has written.
  GpuResult WriteNextTokens(const RoundBatch& batch, int32_t first, int32_t count,
                            bool (*is_ours)(const TokenArray&));
  GpuResult LaunchTransforms(const TransformBatch& batch, int32_t first, int32_t count,
                             OutcomeStatus* statuses);

  const std::unique_ptr<GpuDriver> driver_;  // outlives the memory below
  const int64_t staging_bytes_;
  const std::string device_uuid_;
  BackendLimits limits_;
  int32_t max_piece_ = 0;  // sequences
  int64_t max_rows_ = 0;   // of both tensors

  DeviceMemory rows_;
  DeviceMemory masks_;
  DeviceMemory round_memory_;
  StagingArena arena_;
  AnswerArena answers_;
  DoneWord done_;
  std::vector<Bucket> buckets_;        // destroyed before the memory above; sizes 1, 2, 4, ...
  std::unique_ptr<RoundQueue> queue_;  // of staged rounds; of every Prepare another
};

// Takes the device of the stream, which BackendOptions describes, or the first one.
// UNIMPLEMENTED where there is no driver or no device, INVALID_ARGUMENT for a bad stream,
// FAILED_PRECONDITION for one that is capturing: what is to be tried again later, and that alone.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<GpuDriver> driver,
                                                         void* stream = nullptr);

}  // namespace specd
