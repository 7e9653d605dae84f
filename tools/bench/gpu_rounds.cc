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

}  // namespace

// An upper bound: two kilobytes for everything that a task or a round has once, and generous
// places.
size_t GpuRounds::ArenaBytes() const {
  const RoundShape& shape = set_.shape();
  const auto draft = static_cast<size_t>(shape.draft);
  const size_t place_bytes = sizeof(PlaceEdits) + draft * sizeof(TokenEdit) + 256;
  size_t bytes = 0;
  for (int32_t i = 0; i < shape.num_rounds * shape.batch; ++i) {
    const SequenceEdits& edits = set_.task(i / shape.batch, i % shape.batch).edits;
    bytes +=
        2048 + (draft + 1) * place_bytes + static_cast<size_t>(edits.num_edits) * sizeof(TokenEdit);
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
  for (const auto& [is_draft, row] : NeededRows(set_, round, expected)) {
    rows.push_back((is_draft ? draft_ : target_).get() + row * RowBytes(set_.target()));
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
