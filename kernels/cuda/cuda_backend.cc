#include "kernels/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/bodies/fused_round.h"
#include "kernels/cuda/staged_round.h"

namespace specd {

namespace {

// Rows of 64 sequences with 8 drafts each at V = 128k in bf16 fit; larger rounds take more pieces.
constexpr int64_t kDefaultStagingBytes = int64_t{512} << 20;

// Room in the arenas. A sequence's task with its few hundred edits, and the scores of its tokens,
// are far below the first, each; one sequence with edits of the whole vocabulary must fit by
// itself.
constexpr int64_t kArenaBytesPerSequence = 128 * 1024;
constexpr int64_t kArenaBytesPerId = 2 * sizeof(TokenEdit) + 1;

// What a launch is wide enough to fetch at once: the round itself, and for each sequence its task
// with a chain, places and a short list of edits.
constexpr size_t kUsualBytes = 4 * 1024;
constexpr size_t kUsualBytesPerSequence = 4 * 1024;

int64_t MaskWords(int32_t vocab_size) { return (vocab_size + 31) / 32; }

absl::Status Failure(const GpuResult& result) {
  return absl::InternalError(fmt::format("the GPU failed in a round: {}", result.text()));
}

// An array of answers, `width` elements for each task, which the caller has `stride` apart. It
// begins as the caller has it, so that what no task writes keeps its value.
template <typename T>
class Answers {
 public:
  Answers(T* all, int32_t first, int64_t stride, int64_t width, int32_t num_tasks,
          AnswerArena* arena)
      : caller_(all + first * stride),
        stride_(stride),
        width_(width),
        staged_(arena->Take<T>(width * num_tasks)) {
    if (staged_.host == nullptr) return;
    for (int32_t i = 0; i < num_tasks; ++i) {
      std::copy_n(caller_ + i * stride_, width_, staged_.host + i * width_);
    }
  }

  T* device() const { return staged_.device; }

  void CopyBack(int32_t num_tasks) const {
    for (int32_t i = 0; i < num_tasks; ++i) {
      std::copy_n(staged_.host + i * width_, width_, caller_ + i * stride_);
    }
  }

 private:
  T* caller_;
  int64_t stride_;
  int64_t width_;
  StagedArray<T> staged_;
};

// The row of a tensor as a kernel knows it: its own number where the tensor lies on the device,
// else that of its copy.
uint32_t StageRow(const TensorView& tensor, uint32_t row, RowStage* stage) {
  if (tensor.space == MemorySpace::kDevice) return row;
  return stage->Append(RowAt(tensor, row).data);
}
int32_t StageRow(const MaskView& mask, int32_t row, RowStage* stage) {
  if (mask.space == MemorySpace::kDevice) return row;
  return static_cast<int32_t>(stage->Append(mask.words + row * mask.row_stride));
}

// What a kernel is given: the tensor itself where it lies on the device, else the copied rows.
TensorView OnDevice(const TensorView& tensor, const RowStage& stage) {
  if (tensor.space == MemorySpace::kDevice) return tensor;
  TensorView staged = tensor;
  staged.data = stage.memory();
  staged.num_rows = stage.num_rows();
  staged.row_stride = tensor.vocab_size;
  staged.space = MemorySpace::kDevice;
  return staged;
}
MaskView OnDevice(const MaskView& mask, const RowStage& stage, int32_t vocab_size) {
  if (mask.space == MemorySpace::kDevice) return mask;
  return {static_cast<const uint32_t*>(stage.memory()), stage.num_rows(), MaskWords(vocab_size),
          MemorySpace::kDevice};
}

// Those arrays of next tokens that the device writes: where kernels find the list, and its length.
struct StagedTokenArrays {
  const TokenArray* arrays = nullptr;
  int32_t count = 0;
  bool on_other_devices = false;  // there are some that it cannot write
};
StagedTokenArrays StageNextTokens(const RoundBatch& batch, StagingArena* arena) {
  const StagedArray<TokenArray> list = arena->Take<TokenArray>(batch.num_next_tokens);
  StagedTokenArrays staged{.arrays = list.device};
  for (int32_t i = 0; i < batch.num_next_tokens && list.host != nullptr; ++i) {
    const MemorySpace space = batch.next_tokens[i].space;
    staged.on_other_devices |= space == MemorySpace::kOtherDevice;
    if (space != MemorySpace::kDevice) continue;
    list.host[staged.count++] = batch.next_tokens[i];
  }
  return staged;
}

// The others, which no kernel can reach, once a task's answer has come back: host memory at once,
// that of another device by a copy that is enqueued.
GpuResult WriteOtherNextTokens(const RoundBatch& batch, int32_t task, GpuDriver* driver) {
  const int32_t num_tokens = batch.outcomes[task].num_tokens;
  if (batch.tasks[task].kind != TaskKind::kVerify || num_tokens == 0) return GpuResult::Ok();
  const TokenId* const last = batch.tokens + int64_t{task} * batch.tokens_stride + num_tokens - 1;
  GpuResult result = GpuResult::Ok();
  for (int32_t i = 0; i < batch.num_next_tokens && result.ok(); ++i) {
    const TokenArray& array = batch.next_tokens[i];
    TokenId* const place = array.ids + batch.tasks[task].slot;
    if (array.space == MemorySpace::kHost) *place = *last;
    if (array.space != MemorySpace::kOtherDevice) continue;
    result = driver->ToDevice(place, last, sizeof(*last));
  }
  return result;
}

}  // namespace

// Tasks [first, first + count) of a round, on their way to the device and back.
struct CudaBackend::Piece {
  const RoundBatch& batch;
  const int32_t first;
  const int32_t room;
  int32_t count = 0;
  Answers<ChainOutcome> outcomes;
  Answers<TokenId> tokens;
  Answers<TokenScore> scores;
  Answers<DraftSample> samples;
  StagedRound round;
  StagedArray<ChainTask> tasks;
  StagedTokenArrays next_tokens;
  RowStage target;
  RowStage draft;
  RowStage masks;
};

CudaBackend::CudaBackend(std::unique_ptr<GpuDriver> driver, int64_t staging_bytes,
                         std::string device_uuid)
    : driver_(std::move(driver)),
      staging_bytes_(staging_bytes),
      device_uuid_(std::move(device_uuid)) {}

absl::Status CudaBackend::Prepare(const BackendLimits& limits) {
  SPECD_CHECK(limits.vocab_size >= 1 && limits.vocab_size <= kVocabSizeMax);
  limits_ = limits;
  buckets_.clear();  // they hold addresses that Allocate gives back
  const GpuResult allocated = Allocate();
  if (!allocated.ok()) {
    return absl::ResourceExhaustedError(
        fmt::format("no device memory for rounds of max_batch {}, max_draft {}, vocab_size {}: {}; "
                    "lower them or "
                    "free memory on the device",
                    limits.max_batch, limits.max_draft, limits.vocab_size, allocated.text()));
  }
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
  const int64_t fitting = staging_bytes_ / (rows_per_sequence * row_bytes());
  max_piece_ = static_cast<int32_t>(
      std::clamp<int64_t>(fitting, 1, std::max<int64_t>(limits_.max_batch, 1)));
  // A transform has a row to read and one to write.
  max_rows_ = std::max<int64_t>(max_piece_ * rows_per_sequence, 2);
  const int64_t mask_bytes = MaskWords(limits_.vocab_size) * sizeof(uint32_t);

  GpuResult result = rows_.Allocate(driver_.get(), max_rows_ * row_bytes());
  if (result.ok()) {
    result = masks_.Allocate(driver_.get(), int64_t{max_piece_} * num_places() * mask_bytes);
  }
  if (result.ok()) {
    result = workspaces_.Allocate(
        driver_.get(), max_piece_ * FusedWorkspaceBytes(limits_.vocab_size, limits_.max_draft));
  }
  if (result.ok()) {
    result = arena_.Resize(driver_.get(), max_piece_ * (kArenaBytesPerSequence + mask_bytes) +
                                              limits_.vocab_size * kArenaBytesPerId);
  }
  if (result.ok()) result = answers_.Resize(driver_.get(), max_piece_ * kArenaBytesPerSequence);
  return result;
}

// What happens on the device in a round, once its rows are there, is the same two launches for
// every round of a bucket: fetch what the round brings, run it. Only their widths are the bucket's.
//
// The fetch is a kernel, and not a copy of a fixed size by a copy engine nor reads of host memory
// by the round itself, because of what costs time in a round of one sequence: hand-overs between
// engines and reads of host memory that wait for one another. It asks for everything at once, and
// copies what there is and no more. Answers need no copy: kernels write them to host memory, which
// they need not wait for; only to score tokens they read one back.
GpuResult CudaBackend::CaptureBuckets() {
  arena_.Clear();
  const StagedRound round(1, limits_.max_draft, &arena_);  // first in the arena, as in a piece
  GpuResult result = GpuResult::Ok();
  for (int32_t size = 1; result.ok(); size *= 2) {
    const int32_t num_tasks = std::min(size, max_piece_);
    Bucket& bucket = buckets_.emplace_back();
    for (const bool may_defer : {false, true}) {
      if (!result.ok()) break;
      result = (may_defer ? bucket.with_deferred : bucket.at_once).Capture(driver_.get(), [&] {
        const GpuResult fetched = arena_.LaunchFetch(kUsualBytes + static_cast<size_t>(num_tasks) *
                                                                       kUsualBytesPerSequence);
        if (!fetched.ok()) return fetched;
        return driver_->LaunchRound(round.device(), {.num_tasks = num_tasks,
                                                     .max_draft = limits_.max_draft,
                                                     .vocab_size = limits_.vocab_size,
                                                     .may_defer = may_defer});
      });
    }
    if (num_tasks == max_piece_) break;
  }
  return result;
}

// The first whose rounds have room for so many tasks.
const CudaBackend::Bucket& CudaBackend::BucketFor(int32_t num_tasks) const {
  size_t bucket = 0;
  while (int64_t{1} << bucket < num_tasks) ++bucket;
  return buckets_[bucket];
}

absl::Status CudaBackend::Run(const RoundBatch& batch) {
  SPECD_CHECK(batch.target.vocab_size >= 1 && batch.target.vocab_size <= limits_.vocab_size);
  SPECD_CHECK(batch.draft.num_rows == 0 || batch.draft.vocab_size == batch.target.vocab_size);
  SPECD_CHECK(batch.num_tasks <= limits_.max_batch);
  SPECD_CHECK(batch.tokens_stride > limits_.max_draft);
  for (int32_t done = 0; done < batch.num_tasks;) {
    Piece piece = BeginPiece(batch, done);
    absl::Status status = StagePiece(&piece);
    if (status.ok()) {
      const GpuResult launched = LaunchPiece(piece);
      if (!launched.ok()) status = Failure(launched);
    }
    // Also after an error: the host memory of copies under way must not be touched before this.
    const GpuResult finished = driver_->Synchronize();
    if (!status.ok()) return status;
    if (!finished.ok()) return Failure(finished);

    const GpuResult written = FinishPiece(piece);
    if (!written.ok()) return Failure(written);
    done += piece.count;
  }
  return absl::OkStatus();
}

CudaBackend::Piece CudaBackend::BeginPiece(const RoundBatch& batch, int32_t first) {
  const int64_t places = num_places();
  const int64_t answer_bytes =
      sizeof(ChainOutcome) +
      places * (sizeof(TokenId) + batch.scores_stride * int64_t{sizeof(TokenScore)}) +
      batch.samples_stride * int64_t{sizeof(DraftSample)};
  // Each of the four arrays may end before the next one can begin.
  const int64_t room_bytes = max_piece_ * kArenaBytesPerSequence - 4 * int64_t{kFetchUnit};
  const int64_t fitting = std::clamp<int64_t>(room_bytes / answer_bytes, 1, max_piece_);
  const auto room = static_cast<int32_t>(std::min<int64_t>(fitting, batch.num_tasks - first));

  arena_.Clear();
  answers_.Clear();
  const int64_t stride = batch.tokens_stride;
  const int64_t scores = batch.scores_stride;
  const int64_t target_bytes = batch.target.vocab_size * SizeBytes(batch.target.dtype);
  const int64_t draft_bytes = batch.draft.vocab_size * SizeBytes(batch.draft.dtype);
  const int64_t mask_bytes = MaskWords(batch.target.vocab_size) * sizeof(uint32_t);
  return {.batch = batch,
          .first = first,
          .room = room,
          .outcomes = {batch.outcomes, first, 1, 1, room, &answers_},
          .tokens = {batch.tokens, first, stride, places, room, &answers_},
          .scores = {batch.scores, first, stride * scores, places * scores, room, &answers_},
          .samples = {batch.samples, first, batch.samples_stride, batch.samples_stride, room,
                      &answers_},
          .round = {room, limits_.max_draft, &arena_},
          .tasks = arena_.Take<ChainTask>(room),
          .next_tokens = StageNextTokens(batch, &arena_),
          .target = {driver_.get(), rows_.get(), target_bytes},
          .draft = {driver_.get(), rows_.get() + room * places * row_bytes(), draft_bytes},
          .masks = {driver_.get(), masks_.get(), mask_bytes}};
}

absl::Status CudaBackend::StagePiece(Piece* piece) {
  if (!arena_.full() && !answers_.full()) {
    const ChainTask* const tasks = piece->batch.tasks + piece->first;
    while (piece->count < piece->room && StageTask(tasks[piece->count], piece)) ++piece->count;
  }
  if (piece->count == 0) {
    return absl::ResourceExhaustedError(fmt::format(
        "the edits, overrides and scores of one sequence need more than the {} bytes that a round "
        "has for them on the device; give it fewer",
        arena_.size_bytes() + answers_.size_bytes()));
  }
  for (const RowStage* rows : {&piece->target, &piece->draft, &piece->masks}) {
    if (!rows->result().ok()) return Failure(rows->result());
  }
  return absl::OkStatus();
}

// Copies a task into its slot, with pointers and row numbers that mean something on the device.
// False, and no row is copied, if it does not fit any more.
bool CudaBackend::StageTask(const ChainTask& task, Piece* piece) {
  const DraftChain& chain = task.chain;
  SPECD_CHECK(chain.num_drafts <= limits_.max_draft);
  // Every draft token that is scored has a row; those that are verified have one more.
  const int32_t num_places = chain.num_drafts + (task.kind == TaskKind::kScore ? 0 : 1);
  ChainTask staged = task;
  staged.chain.tokens = arena_.Put(chain.tokens, chain.num_drafts);
  staged.chain.kinds = arena_.Put(chain.kinds, chain.num_drafts);
  staged.chain.draft_weights = arena_.Put(chain.draft_weights, chain.num_drafts);
  staged.chain.draft_masses = arena_.Put(chain.draft_masses, chain.num_drafts);
  staged.chain.target_argmax = arena_.Put(chain.target_argmax, num_places);
  staged.edits.edits = arena_.Put(task.edits.edits, task.edits.num_edits);
  staged.edits.allowed = arena_.Put(task.edits.allowed, MaskWords(piece->batch.target.vocab_size));
  staged.coins = arena_.Put(task.coins, task.num_coins);
  staged.scores.chosen = arena_.Put(task.scores.chosen, task.scores.num_chosen);
  const StagedArray<uint32_t> target_rows = arena_.Take<uint32_t>(num_places);
  const StagedArray<uint32_t> draft_rows = arena_.Take<uint32_t>(chain.num_drafts);
  const StagedArray<PlaceEdits> places =
      arena_.Take<PlaceEdits>(task.places == nullptr ? 0 : num_places);
  staged.chain.target_rows = target_rows.device;
  staged.chain.draft_rows = draft_rows.device;
  staged.places = places.device;
  for (int32_t i = 0; i < num_places && places.host != nullptr; ++i) {
    places.host[i] = task.places[i];
    places.host[i].overrides = arena_.Put(task.places[i].overrides, task.places[i].num_overrides);
  }
  if (arena_.full()) return false;

  const RoundBatch& batch = piece->batch;
  for (int32_t i = 0; i < num_places; ++i) {
    if (chain.target_argmax == nullptr) {
      target_rows.host[i] = StageRow(batch.target, chain.target_rows[i], &piece->target);
    }
    if (places.host != nullptr && places.host[i].mask_row >= 0) {
      places.host[i].mask_row = StageRow(batch.mask, places.host[i].mask_row, &piece->masks);
    }
  }
  for (int32_t i = 0; i < chain.num_drafts; ++i) {
    if (chain.kinds == nullptr || chain.kinds[i] != DraftKind::kSampled) continue;
    draft_rows.host[i] = StageRow(batch.draft, chain.draft_rows[i], &piece->draft);
  }
  piece->tasks.host[piece->count] = staged;
  return true;
}

GpuResult CudaBackend::FinishPiece(const Piece& piece) {
  piece.outcomes.CopyBack(piece.count);
  piece.tokens.CopyBack(piece.count);
  piece.scores.CopyBack(piece.count);
  piece.samples.CopyBack(piece.count);
  GpuResult result = GpuResult::Ok();
  for (int32_t i = piece.first; i < piece.first + piece.count && result.ok(); ++i) {
    result = WriteOtherNextTokens(piece.batch, i, driver_.get());
  }
  if (!piece.next_tokens.on_other_devices) return result;
  const GpuResult copied = driver_->Synchronize();
  return result.ok() ? copied : result;
}

GpuResult CudaBackend::LaunchPiece(const Piece& piece) {
  RoundBatch batch = piece.batch;
  batch.target = OnDevice(batch.target, piece.target);
  batch.draft = OnDevice(batch.draft, piece.draft);
  batch.mask = OnDevice(batch.mask, piece.masks, batch.target.vocab_size);
  batch.tasks = piece.tasks.device;
  batch.num_tasks = piece.count;
  batch.outcomes = piece.outcomes.device();
  batch.tokens = piece.tokens.device();
  batch.tokens_stride = num_places();
  batch.scores = piece.scores.device();
  batch.samples = piece.samples.device();
  batch.next_tokens = piece.next_tokens.arrays;
  batch.num_next_tokens = piece.next_tokens.count;
  const bool may_defer =
      piece.round.Fill(batch, piece.batch.tasks + piece.first, piece.tasks.host, workspaces_.get());
  arena_.Seal();
  const Bucket& bucket = BucketFor(piece.count);
  return (may_defer ? bucket.with_deferred : bucket.at_once).Launch();
}

absl::Status CudaBackend::Transform(const TransformBatch& batch) {
  SPECD_CHECK(batch.source.vocab_size >= 1 && batch.source.vocab_size <= limits_.vocab_size);
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
  RowStage source(driver_.get(), rows_.get(), vocab_size * SizeBytes(batch.source.dtype));
  auto* const out = reinterpret_cast<float*>(rows_.get() + max_rows_ / 2 * row_bytes());
  const StagedArray<RowTransform> rows = arena_.Take<RowTransform>(count);
  SPECD_CHECK(!arena_.full());
  for (int32_t i = 0; i < count; ++i) {
    rows.host[i] = batch.rows[first + i];
    rows.host[i].row = StageRow(batch.source, rows.host[i].row, &source);
    rows.host[i].out = out + int64_t{i} * vocab_size;
  }
  TransformBatch piece = batch;
  piece.source = OnDevice(batch.source, source);
  piece.rows = rows.device;
  piece.num_rows = count;
  piece.statuses = statuses;
  GpuResult result = source.result();
  if (result.ok()) result = arena_.ToDevice();
  if (result.ok()) result = driver_->LaunchTransforms(piece, workspaces_.get());
  for (int32_t i = 0; i < count && result.ok(); ++i) {
    result =
        driver_->ToHost(batch.rows[first + i].out, rows.host[i].out, vocab_size * sizeof(float));
  }
  return result;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<GpuDriver> driver,
                                                         void* stream) {
  std::vector<GpuDevice> devices;
  size_t device = 0;
  GpuResult result = driver->ListDevices(&devices);
  if (result.ok() && devices.empty()) result = GpuResult::Error("no device is visible");
  if (result.ok() && stream != nullptr) {
    result = driver->UseStream(stream, &device);
    if (!result.ok()) {
      return absl::InvalidArgumentError(fmt::format(
          "cuda_stream is not a stream of this process: {}; give a cudaStream_t that is "
          "open, or NULL for one of specd's own",
          result.text()));
    }
  }
  if (result.ok()) result = driver->UseDevice(device);
  if (!result.ok()) {
    return absl::FailedPreconditionError(fmt::format(
        "backend \"cuda\" needs an NVIDIA driver and a device: {}; check nvidia-smi and "
        "CUDA_VISIBLE_DEVICES, or use \"cpu\"",
        result.text()));
  }
  return std::make_unique<CudaBackend>(std::move(driver), kDefaultStagingBytes,
                                       devices[device].uuid);
}

}  // namespace specd
