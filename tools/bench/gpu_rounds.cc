#include "tools/bench/gpu_rounds.h"

#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/cuda/task_upload.h"
#include "kernels/warps/fused_round.h"
#include "tools/bench/round_check.h"

namespace specd::bench {
namespace {

constexpr TokenId kSpoiled = -12345;

int64_t RowBytes(const TensorView& tensor) { return tensor.vocab_size * SizeBytes(tensor.dtype); }

int64_t NumScores(const RoundSet& set) { return set.shape().rows_of_round() * set.scores_stride(); }

// The address on the device of a row of the host's tensor.
const void* OnDevice(const TensorView& tensor, const DeviceMemory& memory, const void* row) {
  return memory.get() + (static_cast<const char*>(row) - static_cast<const char*>(tensor.data));
}

bool Holds(const TensorView& tensor, const void* row) {
  const auto* const begin = static_cast<const char*>(tensor.data);
  const auto* const at = static_cast<const char*>(row);
  return at >= begin && at < begin + tensor.num_rows * RowBytes(tensor);
}

}  // namespace

// An upper bound: a kilobyte for everything that a task or a round has once, and generous places.
size_t GpuRounds::ArenaBytes() const {
  const RoundShape& shape = set_.shape();
  constexpr size_t kOnce = 1024;
  constexpr size_t kSlotBytes = 64;
  const auto places = static_cast<size_t>(shape.rows_of_sequence());
  const size_t place_bytes =
      sizeof(PlaceEdits) + static_cast<size_t>(shape.draft) * sizeof(TokenEdit) + 4 * kSlotBytes;
  size_t bytes = 0;
  for (int32_t round = 0; round < shape.num_rounds; ++round) {
    bytes += kOnce;
    for (int32_t s = 0; s < shape.batch; ++s) {
      const auto num_edits = static_cast<size_t>(set_.task(round, s).edits.num_edits);
      bytes += kOnce + places * place_bytes + num_edits * sizeof(TokenEdit);
    }
  }
  return bytes;
}

GpuResult GpuRounds::CopyRows(const TensorView& tensor, DeviceMemory* memory) {
  const int64_t num_rows =
      std::min(tensor.num_rows, set_.shape().num_rounds * set_.shape().rows_of_round());
  const auto size_bytes = static_cast<size_t>(num_rows * RowBytes(tensor));
  GpuResult result = memory->Allocate(driver_, size_bytes);
  if (result.ok() && size_bytes > 0) {
    result = driver_->ToDevice(memory->get(), tensor.data, size_bytes);
  }
  return result;
}

GpuResult GpuRounds::Load(const std::vector<RoundAnswer>& expected) {
  const RoundShape& shape = set_.shape();
  const auto num_tasks = static_cast<size_t>(shape.num_rounds) * static_cast<size_t>(shape.batch);
  const MaskView& mask = set_.mask();
  const size_t mask_bytes = static_cast<size_t>(mask.num_rows * mask.row_stride) * sizeof(uint32_t);
  const size_t place_bytes =
      sizeof(TokenId) + static_cast<size_t>(set_.scores_stride()) * sizeof(TokenScore);
  const size_t answer_bytes =
      sizeof(TaskOutcome) + static_cast<size_t>(shape.rows_of_sequence()) * place_bytes + 48;

  GpuResult result = CopyRows(set_.target(), &target_);
  if (result.ok()) result = CopyRows(set_.draft(), &draft_);
  if (result.ok()) result = mask_.Allocate(driver_, mask_bytes);
  if (result.ok() && mask_bytes > 0) {
    result = driver_->ToDevice(mask_.get(), mask.words, mask_bytes);
  }
  if (result.ok()) {
    result = round_memory_.Allocate(
        driver_, static_cast<size_t>(
                     RoundMemoryBytes(set_.target().vocab_size, shape.draft, 0, shape.batch)));
  }
  if (result.ok()) result = arena_.Resize(driver_, ArenaBytes());
  if (result.ok()) result = answers_.Resize(driver_, num_tasks * answer_bytes);
  if (!result.ok()) return result;

  for (int32_t round = 0; round < shape.num_rounds; ++round) {
    StageRound(round, expected[static_cast<size_t>(round)]);
  }
  result = arena_.ToDevice();
  const GpuResult finished = driver_->Synchronize();
  return result.ok() ? finished : result;
}

void GpuRounds::StageRound(int32_t round, const RoundAnswer& expected) {
  const RoundShape& shape = set_.shape();
  const RoundUpload place(shape.batch, shape.draft, &arena_);
  const Staged& staged =
      rounds_.emplace_back(Staged{.round = place,
                                  .tasks = arena_.Take<Task>(shape.batch),
                                  .outcomes = answers_.Take<TaskOutcome>(shape.batch),
                                  .tokens = answers_.Take<TokenId>(shape.rows_of_round()),
                                  .scores = answers_.Take<TokenScore>(NumScores(set_)),
                                  .read = {}});
  RoundAnswer none_yet;
  RoundBatch batch = Batch(round, &none_yet);
  const RowUpload none(driver_, nullptr, 0);  // rows keep their numbers
  BatchRows rows_copied{.target = none, .draft = none, .masks = none};
  for (int32_t s = 0; s < shape.batch; ++s) {
    SPECD_CHECK(PackTask(set_.task(round, s), batch, &rows_copied, &arena_, &staged.tasks.host[s]));
  }
  batch.tasks = staged.tasks.device;
  batch.outcomes = staged.outcomes.device;
  batch.tokens = staged.tokens.device;
  batch.scores = staged.scores.device;
  rounds_.back().num_launches =
      staged.round.Fill(batch, &set_.task(round, 0), staged.tasks.host, round_memory_.get());

  std::vector<const void*> rows;
  for (const MemorySpan& span : NeededRows(set_, round, expected)) {
    rows.push_back(Holds(set_.target(), span.data) ? OnDevice(set_.target(), target_, span.data)
                                                   : OnDevice(set_.draft(), draft_, span.data));
  }
  // The values that are read are thrown away, so any word may be the sink. A round writes its
  // outcomes itself.
  rounds_.back().read = {.rows = arena_.Put(rows.data(), static_cast<int64_t>(rows.size())),
                         .num_rows = static_cast<int32_t>(rows.size()),
                         .row_bytes = RowBytes(set_.target()),
                         .sink = arena_.Take<uint32_t>(1).device};
  SPECD_CHECK(!arena_.full() && !answers_.full());
}

RoundBatch GpuRounds::Batch(int32_t round, RoundAnswer* answer) const {
  RoundBatch batch = set_.Batch(round, answer);
  batch.target.data = target_.get();
  batch.target.space = MemorySpace::kDevice;
  batch.draft.data = draft_.get();
  batch.draft.space = MemorySpace::kDevice;
  batch.mask.words = reinterpret_cast<const uint32_t*>(mask_.get());
  batch.mask.space = MemorySpace::kDevice;
  return batch;
}

GpuResult GpuRounds::LaunchRound(int32_t round) {
  return driver_->LaunchRound(rounds_[static_cast<size_t>(round)].round.device(),
                              {.num_tasks = set_.shape().batch,
                               .max_draft = set_.shape().draft,
                               .vocab_size = set_.target().vocab_size,
                               .num_launches = rounds_[static_cast<size_t>(round)].num_launches});
}

GpuResult GpuRounds::LaunchRead(int32_t round) {
  return probes_->LaunchRead(rounds_[static_cast<size_t>(round)].read);
}

double GpuRounds::read_bytes(int32_t round) const {
  const ReadPlan& read = rounds_[static_cast<size_t>(round)].read;
  return static_cast<double>(read.num_rows) * static_cast<double>(read.row_bytes);
}

void GpuRounds::SpoilAnswers() {
  for (const Staged& staged : rounds_) {
    for (int32_t s = 0; s < set_.shape().batch; ++s) {
      staged.outcomes.host[s] = {.status = OutcomeStatus::kBadToken, .num_tokens = kSpoiled};
    }
    std::fill_n(staged.tokens.host, set_.shape().rows_of_round(), kSpoiled);
    std::fill_n(staged.scores.host, NumScores(set_), TokenScore{.id = kSpoiled});
  }
}

std::string GpuRounds::Difference(int32_t round, const RoundAnswer& expected) const {
  const Staged& staged = rounds_[static_cast<size_t>(round)];
  RoundAnswer answer = set_.MakeAnswer();
  std::copy_n(staged.outcomes.host, answer.outcomes.size(), answer.outcomes.begin());
  std::copy_n(staged.tokens.host, answer.tokens.size(), answer.tokens.begin());
  std::copy_n(staged.scores.host, answer.scores.size(), answer.scores.begin());
  return DifferenceOf(set_, round, answer, expected);
}

}  // namespace specd::bench
