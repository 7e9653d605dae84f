// CudaBackend runs rounds on a GPU: the backend "cuda".
//
// Rows in device memory are read in place. Rows in host memory are copied to the device, and only
// those that a round names. Then one launch of a graph does the round. Prepare captures a graph for
// each batch bucket (a power of two). The graph fetches the tasks and runs them with the same
// bodies as on the CPU. At the end it writes a word of pinned memory, which the host polls. If a
// round needs more than the upload memory, it is done in pieces; results do not depend on the cut.
//
// RoundQueue does the staged rounds, with memory of its own. Every call goes through GpuDriver, so
// this file needs no CUDA API and runs in tests over host memory.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/gpu_driver.h"
#include "kernels/cuda/batch_upload.h"
#include "kernels/cuda/captured_graph.h"
#include "kernels/cuda/done_word.h"
#include "kernels/cuda/round_queue.h"
#include "kernels/cuda/upload_arena.h"

namespace specd {

class CudaBackend final : public Backend {
 public:
  // REQUIRES: UseDevice succeeded on the driver. `device_uuid` is that of the device in use. The
  // rows of a piece need at most `upload_bytes`, except that a piece has at least one sequence.
  CudaBackend(std::unique_ptr<GpuDriver> driver, int64_t upload_bytes,
              std::string device_uuid = {});

  std::string_view name() const override { return "cuda"; }
  std::string_view device_uuid() const override { return device_uuid_; }
  absl::Status Prepare(const BackendLimits& limits) override;
  absl::Status Run(const RoundBatch& batch) override;
  absl::Status WriteSlotOutputs(const RoundBatch& batch) override;
  absl::Status ReadDraftTokens(const TokenRows& rows, std::span<const TokenRowRead> reads) override;
  absl::Status MarkDrafts(void* stream) override;
  absl::Status ReadDraftTokensEarly(const TokenRows& rows,
                                    std::span<const TokenRowRead> reads) override;
  absl::Status FollowStream(void* stream) override;
  absl::StatusOr<const int32_t*> KeepColumns(std::span<const int32_t> columns) override;
  absl::Status ReadMemory(std::span<const MemoryRead> reads) override;
  absl::Status EnqueueStaged(void* stream, int32_t num_tasks) override;
  absl::Status Stage(const RoundBatch& batch) override;
  absl::StatusOr<bool> Collect() override;
  absl::Status Transform(const TransformBatch& batch) override;

 private:
  // The launches of rounds up to a number of tasks, for each GraphKind.
  struct GraphKind {
    int32_t num_launches = 1;  // FusedRound::num_launches
    bool resolves = false;
    size_t index() const { return static_cast<size_t>(num_launches - 1 + (resolves ? 3 : 0)); }
  };
  using Bucket = std::array<CapturedGraph, 6>;

  int64_t row_bytes() const { return limits_.vocab_size * SizeBytes(DType::kFloat32); }
  int32_t num_places() const { return limits_.max_draft + 1; }

  // The ends of the errors of Mark.
  struct MarkRemedies {
    std::string_view on_other_device;
    std::string_view refused;
    std::string_view capturing;
  };
  absl::Status Mark(void* stream, const MarkRemedies& remedies);

  void CheckLimits(const RoundBatch& batch) const;
  GpuResult Allocate();
  GpuResult CaptureBuckets();
  GpuResult CaptureGraph(int32_t num_tasks, GraphKind kind, CapturedGraph* graph);
  // Enqueues the launches of a round of at most num_tasks.
  GpuResult Enqueue(const FusedRound* round, int32_t num_tasks, GraphKind kind, bool records);
  const Bucket& BucketFor(int32_t num_tasks) const;
  BatchUpload BeginPiece(const RoundBatch& batch, int32_t first);
  GpuResult LaunchPiece(const BatchUpload& piece);
  GpuResult FinishPiece(const BatchUpload& piece);
  // Writes the slot outputs of `count` tasks from `first` on, whose answers have come back, to
  // those arrays that no kernel has written. REQUIRES: count <= max_piece_.
  GpuResult WriteSlotOutputs(const RoundBatch& batch, int32_t first, int32_t count,
                             bool (*is_ours)(const SlotOutput&));
  GpuResult LaunchTransforms(const TransformBatch& batch, int32_t first, int32_t count,
                             OutcomeStatus* statuses);

  const std::unique_ptr<GpuDriver> driver_;  // outlives the memory below
  const int64_t upload_bytes_;
  const std::string device_uuid_;
  BackendLimits limits_;
  int32_t max_piece_ = 0;  // sequences
  int64_t max_rows_ = 0;   // the rows of both tensors

  DeviceMemory rows_;
  DeviceMemory masks_;
  DeviceMemory columns_;  // of narrow rows
  DeviceMemory round_memory_;
  UploadArena arena_;
  AnswerArena answers_;
  DoneWord done_;
  std::vector<Bucket> buckets_;        // destroyed before the memory above; sizes 1, 2, 4, ...
  std::unique_ptr<RoundQueue> queue_;  // runs staged rounds; every Prepare makes another
};

}  // namespace specd
