#include "kernels/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/capture_check.h"
#include "kernels/cuda/device_reader.h"
#include "kernels/cuda/round_upload.h"
#include "kernels/cuda/slot_writes.h"
#include "kernels/warps/fused_round.h"

namespace specd {

namespace {

constexpr std::string_view kRoundRemedy =
    "end the capture first, or make rounds part of the graph with specd_enqueue_staged";

// Whether it is cudaStreamLegacy (1) or cudaStreamPerThread (2), which every device has.
bool IsDefaultStream(const void* stream) {
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  return handle == 1 || handle == 2;
}

absl::Status Failure(const GpuResult& result) {
  return absl::InternalError(fmt::format("the GPU failed in a round: {}", result.text()));
}

}  // namespace

CudaBackend::CudaBackend(std::unique_ptr<GpuDriver> driver, int64_t upload_bytes,
                         std::string device_uuid)
    : driver_(std::move(driver)),
      upload_bytes_(upload_bytes),
      device_uuid_(std::move(device_uuid)) {}

absl::Status CudaBackend::Prepare(const BackendLimits& limits) {
  SPECD_CHECK(limits.vocab_size >= 1 && limits.vocab_size <= kVocabSizeMax);
  const absl::Status is_free = CheckNotCapturing(
      driver_.get(), "the memory of rounds is prepared on it now, not when the graph is launched",
      "end the capture first");
  if (!is_free.ok()) return is_free;
  limits_ = limits;
  queue_.reset();
  buckets_.clear();  // the graphs hold addresses that Allocate frees
  const GpuResult allocated = Allocate();
  if (!allocated.ok()) {
    return absl::ResourceExhaustedError(
        fmt::format("no device memory for rounds of max_batch {}, max_draft {}, vocab_size {}: {}; "
                    "lower them or "
                    "free memory on the device",
                    limits.max_batch, limits.max_draft, limits.vocab_size, allocated.text()));
  }
  queue_ = std::make_unique<RoundQueue>(driver_.get(), limits_);
  const GpuResult captured = CaptureBuckets();
  if (captured.ok()) return absl::OkStatus();
  buckets_.clear();
  return absl::InternalError(
      fmt::format("the GPU refused a graph of a round: {}; check that its driver is as new as the "
                  "CUDA that specd was built with",
                  captured.text()));
}

GpuResult CudaBackend::Allocate() {
  const int64_t rows_per_sequence = 2 * int64_t{limits_.max_draft} + 1;
  const int64_t fitting = upload_bytes_ / (rows_per_sequence * row_bytes());
  max_piece_ = static_cast<int32_t>(
      std::clamp<int64_t>(fitting, 1, std::max<int64_t>(limits_.max_batch, 1)));
  // A transform reads one row and writes one.
  max_rows_ = std::max<int64_t>(max_piece_ * rows_per_sequence, 2);
  const int64_t mask_bytes = MaskWords(limits_.vocab_size) * sizeof(uint32_t);

  GpuResult result = rows_.Allocate(driver_.get(), max_rows_ * row_bytes());
  if (result.ok()) {
    result = masks_.Allocate(driver_.get(), int64_t{max_piece_} * num_places() * mask_bytes);
  }
  if (result.ok()) {
    result = round_memory_.Allocate(
        driver_.get(),
        RoundMemoryBytes(limits_.vocab_size, limits_.max_draft, limits_.recent_room, max_piece_));
  }
  if (result.ok()) {
    result = arena_.Resize(driver_.get(),
                           TaskArenaBytes(limits_.vocab_size, limits_.max_draft, max_piece_));
  }
  if (result.ok()) result = answers_.Resize(driver_.get(), AnswerArenaBytes(max_piece_));
  if (result.ok()) result = done_.Allocate(driver_.get());
  return result;
}

// After a round's rows have been copied, the device runs the same few launches for every round of a
// bucket. They fetch the round, resolve its tasks if any is incomplete, run the round, and report
// that it is done. Only the widths belong to the bucket.
//
// The fetch is a kernel. A copy engine would copy a fixed size, and the round itself would read
// host memory in dependent steps. In a round of one sequence, the time goes to hand-overs between
// engines and to such reads. The fetch requests all bytes at once and copies only those that exist.
// Answers need no copy: kernels write them to host memory without waiting. Only the scoring of
// tokens reads an answer back.
GpuResult CudaBackend::CaptureBuckets() {
  GpuResult result = GpuResult::Ok();
  for (int32_t size = 1; result.ok(); size *= 2) {
    const int32_t num_tasks = std::min(size, max_piece_);
    Bucket& bucket = buckets_.emplace_back();
    for (const bool resolves : {false, true}) {
      for (const int32_t num_launches : {1, 2, 3}) {
        const GraphKind kind{.num_launches = num_launches, .resolves = resolves};
        if (result.ok()) result = CaptureGraph(num_tasks, kind, &bucket[kind.index()]);
      }
    }
    if (num_tasks == max_piece_) break;
  }
  return result;
}

GpuResult CudaBackend::CaptureGraph(int32_t num_tasks, GraphKind kind, CapturedGraph* graph) {
  arena_.Clear();
  const RoundUpload round(1, limits_.max_draft, &arena_);  // first in the arena, as in a piece
  return graph->Capture(driver_.get(),
                        [&] { return Enqueue(round.device(), num_tasks, kind, false); });
}

GpuResult CudaBackend::Enqueue(const FusedRound* round, int32_t num_tasks, GraphKind kind,
                               bool records) {
  const RoundBounds bounds{.num_tasks = num_tasks,
                           .max_draft = limits_.max_draft,
                           .vocab_size = limits_.vocab_size,
                           .num_launches = kind.num_launches};
  GpuResult result = arena_.LaunchFetch(UsualFetchBytes(num_tasks));
  if (result.ok() && kind.resolves) result = driver_->LaunchResolve(round, bounds);
  if (result.ok()) result = driver_->LaunchRound(round, bounds);
  if (result.ok() && records) {
    result = driver_->LaunchRecord(round, RecordTokensIn(round_memory_.get()), bounds);
  }
  if (result.ok()) result = done_.LaunchEnd();
  return result;
}

// The first bucket whose rounds have room for num_tasks.
const CudaBackend::Bucket& CudaBackend::BucketFor(int32_t num_tasks) const {
  size_t bucket = 0;
  while (int64_t{1} << bucket < num_tasks) ++bucket;
  return buckets_[bucket];
}

void CudaBackend::CheckLimits(const RoundBatch& batch) const {
  SPECD_CHECK(batch.target.vocab_size >= 1 && batch.target.vocab_size <= limits_.vocab_size);
  SPECD_CHECK(batch.draft.num_rows == 0 || batch.draft.vocab_size == batch.target.vocab_size);
  SPECD_CHECK(batch.num_tasks <= limits_.max_batch);
  SPECD_CHECK(batch.tokens_stride >= limits_.max_output());
  SPECD_CHECK(batch.slots.recent_room <= limits_.recent_room);
}

absl::Status CudaBackend::Run(const RoundBatch& batch) {
  CheckLimits(batch);
  const absl::Status is_free = CheckNotCapturing(
      driver_.get(), "a round runs on it now, not when the graph is launched", kRoundRemedy);
  if (!is_free.ok()) return is_free;
  for (int32_t done = 0; done < batch.num_tasks;) {
    BatchUpload piece = BeginPiece(batch, done);
    if (piece.PackTasks() == 0) {
      batch.outcomes[done++] = {.status = OutcomeStatus::kNoRoom};
      continue;
    }
    absl::Status status;
    if (!piece.result().ok()) status = Failure(piece.result());
    if (status.ok()) {
      const GpuResult launched = LaunchPiece(piece);
      if (!launched.ok()) status = Failure(launched);
    }
    if (status.ok()) {
      const GpuResult finished = done_.Await();
      if (!finished.ok()) status = Failure(finished);
    }
    if (!status.ok()) {
      // The host memory of running copies must not be touched before this.
      static_cast<void>(driver_->Synchronize());
      done_.CatchUp();
      return status;
    }

    const GpuResult written = FinishPiece(piece);
    if (!written.ok()) return Failure(written);
    done += piece.count();
  }
  return absl::OkStatus();
}

BatchUpload CudaBackend::BeginPiece(const RoundBatch& batch, int32_t first) {
  arena_.Clear();
  answers_.Clear();
  const int32_t room = std::min(max_piece_, batch.num_tasks - first);
  const int64_t target_bytes = NumElements(batch.target) * SizeBytes(batch.target.dtype);
  const int64_t draft_bytes = NumElements(batch.draft) * SizeBytes(batch.draft.dtype);
  const int64_t mask_bytes = MaskWords(batch.target.vocab_size) * sizeof(uint32_t);
  const BatchRows rows = {
      .target = {driver_.get(), rows_.get(), target_bytes},
      .draft = {driver_.get(), rows_.get() + room * num_places() * row_bytes(), draft_bytes},
      .masks = {driver_.get(), masks_.get(), mask_bytes}};
  return {batch, first, max_piece_, limits_, rows, &arena_, &answers_};
}

GpuResult CudaBackend::LaunchPiece(const BatchUpload& piece) {
  GraphKind kind;
  kind.num_launches = piece.Fill(round_memory_.get());
  kind.resolves = piece.resolves();
  arena_.Seal();
  // A recorded round has one launch more, and no graph: graphs are for rounds without an observer.
  if (piece.batch().decisions != nullptr) {
    return Enqueue(piece.round(), piece.count(), kind, true);
  }
  return BucketFor(piece.count())[kind.index()].Launch();
}

GpuResult CudaBackend::FinishPiece(const BatchUpload& piece) {
  piece.CopyBack();
  // Kernels have written the arrays on the device.
  return WriteSlotOutputs(
      piece.batch(), piece.first(), piece.count(),
      [](const SlotOutput& output) { return output.space != MemorySpace::kDevice; });
}

absl::Status CudaBackend::WriteSlotOutputs(const RoundBatch& batch) {
  const absl::Status is_free = CheckNotCapturing(
      driver_.get(), "slot outputs are written on it now, not when the graph is launched",
      kRoundRemedy);
  if (!is_free.ok()) return is_free;
  // A piece of the tasks at a time: the room for its answers holds its rows of all slot outputs.
  for (int32_t first = 0; first < batch.num_tasks; first += max_piece_) {
    const GpuResult written =
        WriteSlotOutputs(batch, first, std::min(max_piece_, batch.num_tasks - first),
                         [](const SlotOutput&) { return true; });
    if (!written.ok()) return Failure(written);
  }
  return absl::OkStatus();
}

GpuResult CudaBackend::WriteSlotOutputs(const RoundBatch& batch, int32_t first, int32_t count,
                                        bool (*is_ours)(const SlotOutput&)) {
  const SlotOutput* const end = batch.slot_outputs + batch.num_slot_outputs;
  if (std::none_of(batch.slot_outputs, end, is_ours)) return GpuResult::Ok();
  answers_.Clear();  // the answers have been copied back
  const SlotWrites writes(batch, first, count, &answers_);
  GpuResult result = GpuResult::Ok();
  bool copies = false;
  for (const SlotOutput* output = batch.slot_outputs; output != end && result.ok(); ++output) {
    if (!is_ours(*output)) continue;
    if (output->space == MemorySpace::kHost) {
      writes.Store(*output);
    } else {
      copies = true;
      result = writes.Copy(*output, driver_.get());
    }
  }
  if (!copies) return result;
  // Needed even after an error: copies may still run.
  const GpuResult copied = driver_->Synchronize();
  return result.ok() ? copied : result;
}

absl::Status CudaBackend::ReadDraftTokens(const TokenRows& rows,
                                          std::span<const TokenRowRead> reads) {
  if (rows.space == MemorySpace::kHost) return Backend::ReadDraftTokens(rows, reads);
  const absl::Status is_free = CheckNotCapturing(
      driver_.get(), "draft tokens are copied from it now, not when the graph is launched",
      kRoundRemedy);
  if (!is_free.ok()) return is_free;
  const GpuResult result =
      DeviceReader(driver_.get(), &answers_).ReadTokens(rows, reads, limits_.max_draft, max_piece_);
  return result.ok() ? absl::OkStatus() : Failure(result);
}

absl::Status CudaBackend::MarkDrafts(void* stream) {
  return Mark(stream, {.on_other_device = "mark draft tokens on a stream of that device",
                       .refused = "verify the round without one",
                       .capturing = "whose draft tokens are written at every launch; mark them "
                                    "after the launch of the graph"});
}

absl::Status CudaBackend::FollowStream(void* stream) {
  const absl::Status marked =
      Mark(stream,
           {.on_other_device = "give a stream of that device",
            .refused = "wait for it, and leave cuda_stream NULL",
            .capturing = "whose rows are written at every launch; make the call after the launch "
                         "of the graph"});
  if (!marked.ok()) return marked;
  const GpuResult result = driver_->EnqueueAfterMark();
  driver_->EnqueueOn(nullptr);
  return result.ok() ? absl::OkStatus() : Failure(result);
}

absl::Status CudaBackend::Mark(void* stream, const MarkRemedies& remedies) {
  // A default CUDA stream belongs to the device that is current, and Mark makes ours current.
  size_t device = driver_->device_in_use();
  GpuResult result =
      IsDefaultStream(stream) ? GpuResult::Ok() : driver_->FindDevice(stream, &device);
  if (result.ok() && device != driver_->device_in_use()) {
    return absl::InvalidArgumentError(
        fmt::format("cuda_stream is of device {}, and rounds run on device {}; {}", device,
                    driver_->device_in_use(), remedies.on_other_device));
  }
  bool is_capturing = false;
  if (result.ok()) result = driver_->Mark(stream, &is_capturing);
  if (!result.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("cuda_stream does not take a mark: {}; {}", result.text(), remedies.refused));
  }
  if (!is_capturing) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("cuda_stream is capturing a graph, {}", remedies.capturing));
}

absl::Status CudaBackend::ReadDraftTokensEarly(const TokenRows& rows,
                                               std::span<const TokenRowRead> reads) {
  if (rows.space == MemorySpace::kHost) return Backend::ReadDraftTokens(rows, reads);
  const absl::Status is_free = CheckNotCapturing(
      driver_.get(), "draft tokens are copied now, not when the graph is launched", kRoundRemedy);
  if (!is_free.ok()) return is_free;
  GpuResult result = driver_->EnqueueAfterMark();
  if (!result.ok()) return Failure(result);
  result =
      DeviceReader(driver_.get(), &answers_).ReadTokens(rows, reads, limits_.max_draft, max_piece_);
  driver_->EnqueueOn(nullptr);
  return result.ok() ? absl::OkStatus() : Failure(result);
}

absl::StatusOr<const int32_t*> CudaBackend::KeepColumns(std::span<const int32_t> columns) {
  const absl::Status is_free = CheckNotCapturing(
      driver_.get(), "columns are copied to it now, not when the graph is launched",
      "end the capture first");
  if (!is_free.ok()) return is_free;
  GpuResult result = columns_.Allocate(driver_.get(), columns.size_bytes());
  if (result.ok()) result = driver_->ToDevice(columns_.get(), columns.data(), columns.size_bytes());
  const GpuResult copied = driver_->Synchronize();
  if (result.ok()) result = copied;
  if (!result.ok()) return Failure(result);
  return reinterpret_cast<const int32_t*>(columns_.get());
}

absl::Status CudaBackend::ReadMemory(std::span<const MemoryRead> reads) {
  const absl::Status is_free = CheckNotCapturing(
      driver_.get(), "memory is copied from it now, not when the graph is launched", kRoundRemedy);
  if (!is_free.ok()) return is_free;
  const GpuResult result = DeviceReader(driver_.get(), &answers_).Read(reads);
  return result.ok() ? absl::OkStatus() : Failure(result);
}

absl::Status CudaBackend::EnqueueStaged(void* stream, int32_t num_tasks) {
  return queue_->Enqueue(stream, num_tasks);
}
absl::Status CudaBackend::Stage(const RoundBatch& batch) {
  CheckLimits(batch);
  return queue_->Stage(batch);
}
absl::StatusOr<bool> CudaBackend::Collect() { return queue_->Collect(); }

absl::Status CudaBackend::Transform(const TransformBatch& batch) {
  SPECD_CHECK(batch.source.vocab_size >= 1 && batch.source.vocab_size <= limits_.vocab_size);
  const absl::Status is_free = CheckNotCapturing(
      driver_.get(), "rows are transformed on it now, not when the graph is launched",
      "end the capture first");
  if (!is_free.ok()) return is_free;
  const auto most = static_cast<int32_t>(std::min<int64_t>(max_rows_ / 2, max_piece_));
  for (int32_t first = 0; first < batch.num_rows; first += most) {
    const int32_t count = std::min(most, batch.num_rows - first);
    arena_.Clear();
    answers_.Clear();
    const Answers<OutcomeStatus> statuses(batch.statuses, first, 1, 1, count, &answers_);
    const GpuResult launched = LaunchTransforms(batch, first, count, statuses.device());
    const GpuResult finished = driver_->Synchronize();
    if (!launched.ok()) return Failure(launched);
    if (!finished.ok()) return Failure(finished);
    statuses.CopyBack(count);
  }
  return absl::OkStatus();
}

GpuResult CudaBackend::LaunchTransforms(const TransformBatch& batch, int32_t first, int32_t count,
                                        OutcomeStatus* statuses) {
  const int32_t vocab_size = batch.source.vocab_size;
  RowUpload source(driver_.get(), rows_.get(), vocab_size * SizeBytes(batch.source.dtype));
  auto* const out = reinterpret_cast<float*>(rows_.get() + max_rows_ / 2 * row_bytes());
  const ArenaArray<RowTransform> rows = arena_.Take<RowTransform>(count);
  SPECD_CHECK(!arena_.full());
  for (int32_t i = 0; i < count; ++i) {
    rows.host[i] = batch.rows[first + i];
    rows.host[i].row = UploadRow(batch.source, rows.host[i].row, &source);
    rows.host[i].out = out + int64_t{i} * vocab_size;
  }
  TransformBatch piece = batch;
  piece.source = OnDevice(batch.source, source);
  piece.rows = rows.device;
  piece.num_rows = count;
  piece.statuses = statuses;
  GpuResult result = source.result();
  if (result.ok()) result = arena_.ToDevice();
  if (result.ok()) result = driver_->LaunchTransforms(piece, round_memory_.get());
  for (int32_t i = 0; i < count && result.ok(); ++i) {
    result =
        driver_->ToHost(batch.rows[first + i].out, rows.host[i].out, vocab_size * sizeof(float));
  }
  return result;
}

}  // namespace specd
