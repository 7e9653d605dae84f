#include "kernels/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace specd {

namespace {

// Rows of 64 sequences with 8 drafts each at V = 128k in bf16 fit; larger rounds take more pieces.
constexpr int64_t kDefaultStagingBytes = int64_t{512} << 20;

}  // namespace

GpuResult DeviceMemory::Allocate(GpuDriver* driver, size_t size_bytes) {
  Release();
  driver_ = driver;
  // A zero-sized allocation is an error for some drivers; no round needs to know.
  return driver->Allocate(std::max<size_t>(size_bytes, 1), &memory_);
}

void DeviceMemory::Release() {
  if (memory_ == nullptr) return;
  // Nothing can be done about memory that cannot be given back, but it must not pass unseen. On
  // stderr, because embedded in an engine there is no logger of ours.
  const GpuResult result = driver_->Free(memory_);
  if (!result.ok()) fmt::print(stderr, "specd: freeing device memory: {}\n", result.text());
  memory_ = nullptr;
}

void RowStage::Begin(const TensorView& source) {
  source_ = source;
  num_rows_ = 0;
}

GpuResult RowStage::Append(uint32_t source_row, uint32_t* row) {
  const int64_t row_bytes = source_.vocab_size * SizeBytes(source_.dtype);
  *row = static_cast<uint32_t>(num_rows_);
  char* place = static_cast<char*>(memory_.get()) + num_rows_ * row_bytes;
  ++num_rows_;
  return memory_.driver()->ToDevice(place, RowAt(source_, source_row).data, row_bytes);
}

TensorView RowStage::view() const {
  return {memory_.get(), source_.dtype, num_rows_, source_.vocab_size, source_.vocab_size};
}

CudaBackend::CudaBackend(std::unique_ptr<GpuDriver> driver, int64_t staging_bytes)
    : driver_(std::move(driver)), staging_bytes_(staging_bytes) {}

absl::Status CudaBackend::Prepare(const BackendLimits& limits) {
  SPECD_CHECK(limits.vocab_size >= 1 && limits.vocab_size <= kVocabSizeMax);
  limits_ = limits;
  const GpuResult result = Allocate();
  if (result.ok()) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "no device memory for rounds of max_batch {}, max_draft {}, vocab_size {}: {}; lower them or "
      "free memory on the device",
      limits.max_batch, limits.max_draft, limits.vocab_size, result.text()));
}

GpuResult CudaBackend::Allocate() {
  const int64_t row_bytes = limits_.vocab_size * SizeBytes(DType::kFloat32);
  const int64_t rows_per_sequence = 2 * int64_t{limits_.max_draft} + 1;
  const int64_t fitting = staging_bytes_ / (rows_per_sequence * row_bytes);
  max_piece_ = static_cast<int32_t>(
      std::clamp<int64_t>(fitting, 1, std::max<int64_t>(limits_.max_batch, 1)));

  const size_t drafts = static_cast<size_t>(max_piece_) * limits_.max_draft;
  const size_t places = drafts + max_piece_;
  GpuResult result = target_.Resize(driver_.get(), places * row_bytes);
  if (result.ok()) result = draft_.Resize(driver_.get(), drafts * row_bytes);
  if (result.ok()) result = tasks_.Resize(driver_.get(), max_piece_);
  if (result.ok()) result = draft_tokens_.Resize(driver_.get(), drafts);
  if (result.ok()) result = kinds_.Resize(driver_.get(), drafts);
  if (result.ok()) result = target_rows_.Resize(driver_.get(), places);
  if (result.ok()) result = draft_rows_.Resize(driver_.get(), drafts);
  if (result.ok()) result = outcomes_.Resize(driver_.get(), max_piece_);
  if (result.ok()) result = tokens_.Resize(driver_.get(), places);
  return result;
}

absl::Status CudaBackend::Run(const RoundBatch& batch) {
  SPECD_CHECK(batch.target.vocab_size >= 1 && batch.target.vocab_size <= limits_.vocab_size);
  SPECD_CHECK(batch.draft.num_rows == 0 || batch.draft.vocab_size == batch.target.vocab_size);
  SPECD_CHECK(batch.num_tasks <= limits_.max_batch);
  SPECD_CHECK(batch.tokens_stride > limits_.max_draft);
  for (int32_t first = 0; first < batch.num_tasks; first += max_piece_) {
    const int32_t count = std::min(max_piece_, batch.num_tasks - first);
    const GpuResult result = RunPiece(batch, first, count);
    if (!result.ok()) {
      return absl::InternalError(fmt::format("the GPU failed in a round: {}", result.text()));
    }
  }
  return absl::OkStatus();
}

GpuResult CudaBackend::RunPiece(const RoundBatch& batch, int32_t first, int32_t count) {
  target_.Begin(batch.target);
  draft_.Begin(batch.draft);
  GpuResult result = GpuResult::Ok();
  for (int32_t slot = 0; slot < count && result.ok(); ++slot) {
    result = Stage(batch.tasks[first + slot], slot);
  }
  const size_t drafts = static_cast<size_t>(count) * limits_.max_draft;
  const size_t places = drafts + count;
  if (result.ok()) result = tasks_.ToDevice(count);
  if (result.ok()) result = draft_tokens_.ToDevice(drafts);
  if (result.ok()) result = kinds_.ToDevice(drafts);
  if (result.ok()) result = target_rows_.ToDevice(places);
  if (result.ok()) result = draft_rows_.ToDevice(drafts);

  RoundBatch piece;
  piece.target = target_.view();
  piece.draft = draft_.view();
  piece.tasks = tasks_.device();
  piece.num_tasks = count;
  piece.outcomes = outcomes_.device();
  piece.tokens = tokens_.device();
  piece.tokens_stride = limits_.max_draft + 1;
  if (result.ok()) result = driver_->LaunchChains(piece);
  if (result.ok()) result = outcomes_.ToHost(count);
  if (result.ok()) result = tokens_.ToHost(places);
  // Also after an error: the host memory of copies under way must not be touched before this.
  const GpuResult finished = driver_->Synchronize();
  if (!result.ok()) return result;
  if (!finished.ok()) return finished;

  for (int32_t slot = 0; slot < count; ++slot) {
    const ChainOutcome& outcome = outcomes_.host()[slot];
    batch.outcomes[first + slot] = outcome;
    std::copy_n(tokens_.host() + int64_t{slot} * piece.tokens_stride, outcome.num_tokens,
                batch.tokens + int64_t{first + slot} * batch.tokens_stride);
  }
  return GpuResult::Ok();
}

// Copies a task into its slot, with pointers and row numbers that mean something on the device.
GpuResult CudaBackend::Stage(const ChainTask& task, int32_t slot) {
  const DraftChain& chain = task.chain;
  SPECD_CHECK(chain.num_drafts <= limits_.max_draft);
  const int64_t draft = int64_t{slot} * limits_.max_draft;
  const int64_t place = int64_t{slot} * (limits_.max_draft + 1);
  ChainTask& staged = tasks_.host()[slot];
  staged = task;
  staged.chain.tokens = draft_tokens_.device() + draft;
  staged.chain.kinds = kinds_.device() + draft;
  staged.chain.target_rows = target_rows_.device() + place;
  staged.chain.draft_rows = draft_rows_.device() + draft;
  for (int32_t i = 0; i <= chain.num_drafts; ++i) {
    GpuResult result = target_.Append(chain.target_rows[i], &target_rows_.host()[place + i]);
    if (!result.ok()) return result;
  }
  for (int32_t i = 0; i < chain.num_drafts; ++i) {
    draft_tokens_.host()[draft + i] = chain.tokens[i];
    kinds_.host()[draft + i] = chain.kinds[i];
    if (chain.kinds[i] != DraftKind::kSampled) continue;
    GpuResult result = draft_.Append(chain.draft_rows[i], &draft_rows_.host()[draft + i]);
    if (!result.ok()) return result;
  }
  return GpuResult::Ok();
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<GpuDriver> driver) {
  std::vector<GpuDevice> devices;
  GpuResult result = driver->ListDevices(&devices);
  if (result.ok() && devices.empty()) result = GpuResult::Error("no device is visible");
  if (result.ok()) result = driver->UseDevice(0);
  if (!result.ok()) {
    return absl::FailedPreconditionError(fmt::format(
        "backend \"cuda\" needs an NVIDIA driver and a device: {}; check nvidia-smi and "
        "CUDA_VISIBLE_DEVICES, or use \"cpu\"",
        result.text()));
  }
  return std::make_unique<CudaBackend>(std::move(driver), kDefaultStagingBytes);
}

}  // namespace specd
