#include "kernels/cuda/batch_upload.h"

namespace specd {

namespace {

// The room in the arenas for one sequence. Its task with a few hundred edits and the most coins of
// a client (96 KiB) takes less than kArenaBytesPerSequence. So do the scores of its tokens.
constexpr int64_t kArenaBytesPerSequence = 128 * 1024;
constexpr int64_t kListBytes = 8 * 1024 * 1024;

// The bytes that a launch is wide enough to fetch at once: the round itself, and for each sequence
// its task with a chain, places and a short list of edits.
constexpr size_t kUsualBytes = 4 * 1024;
constexpr size_t kUsualBytesPerSequence = 4 * 1024;

// The decisions of one task that come back.
int32_t NumDecisions(const RoundBatch& batch, int32_t max_draft) {
  return batch.decisions == nullptr ? 0 : std::min(batch.decisions_stride, max_draft + 1);
}

// The tasks from `first` on whose answers fit, at most max_tasks.
int32_t RoomFor(const RoundBatch& batch, int32_t first, int32_t max_tasks,
                const BackendLimits& limits, const Arena& answers) {
  const int64_t max_output = limits.max_output();
  const int64_t answer_bytes =
      sizeof(TaskOutcome) +
      max_output *
          (sizeof(TokenId) + sizeof(int32_t) + batch.scores_stride * int64_t{sizeof(TokenScore)}) +
      batch.samples_stride * int64_t{sizeof(DraftSample)} +
      NumDecisions(batch, limits.max_draft) * int64_t{sizeof(PlaceDecision)};
  // Each of the six arrays may end before the next one can begin.
  const int64_t room_bytes = static_cast<int64_t>(answers.size_bytes()) - 6 * int64_t{kFetchUnit};
  const int64_t fitting = std::clamp<int64_t>(room_bytes / answer_bytes, 1, max_tasks);
  return static_cast<int32_t>(std::min<int64_t>(fitting, batch.num_tasks - first));
}

}  // namespace

size_t ListBytesMax(int32_t vocab_size, int32_t max_draft) {
  const int64_t list_bytes = vocab_size * int64_t{sizeof(TokenEdit)};
  return std::min((max_draft + 2) * list_bytes, std::max(2 * list_bytes, kListBytes));
}
size_t TaskArenaBytes(int32_t vocab_size, int32_t max_draft, int32_t max_tasks) {
  const int64_t mask_bytes = MaskWords(vocab_size) * sizeof(uint32_t);
  return max_tasks * (kArenaBytesPerSequence + mask_bytes) + ListBytesMax(vocab_size, max_draft);
}
size_t AnswerArenaBytes(int32_t max_tasks) { return max_tasks * kArenaBytesPerSequence; }

size_t UsualFetchBytes(int32_t num_tasks) {
  return kUsualBytes + static_cast<size_t>(num_tasks) * kUsualBytesPerSequence;
}

BatchUpload::BatchUpload(const RoundBatch& batch, int32_t first, int32_t max_tasks,
                         const BackendLimits& limits, const BatchRows& rows, Arena* arena,
                         Arena* answers)
    : batch_(batch),
      first_(first),
      room_(RoomFor(batch, first, max_tasks, limits, *answers)),
      limits_(limits),
      arena_(arena),
      answers_(answers),
      outcomes_(batch.outcomes, first, 1, 1, room_, answers),
      tokens_(batch.tokens, first, batch.tokens_stride, limits.max_output(), room_, answers),
      path_(batch.path, first, batch.tokens_stride, batch.path == nullptr ? 0 : limits.max_output(),
            room_, answers),
      scores_(batch.scores, first, int64_t{batch.tokens_stride} * batch.scores_stride,
              int64_t{limits.max_output()} * batch.scores_stride, room_, answers),
      samples_(batch.samples, first, batch.samples_stride, batch.samples_stride, room_, answers),
      decisions_(batch.decisions, first, batch.decisions_stride,
                 NumDecisions(batch, limits.max_draft), room_, answers),
      round_(room_, limits.max_draft, arena),
      tasks_(arena->Take<Task>(room_)),
      slot_outputs_(PutSlotOutputs(batch, arena)),
      rows_(rows) {}

BatchUpload::SlotOutputs BatchUpload::PutSlotOutputs(const RoundBatch& batch, Arena* arena) {
  const ArenaArray<SlotOutput> list = arena->Take<SlotOutput>(batch.num_slot_outputs);
  SlotOutputs outputs{.arrays = list.device};
  for (int32_t i = 0; i < batch.num_slot_outputs && list.host != nullptr; ++i) {
    if (batch.slot_outputs[i].space != MemorySpace::kDevice) continue;
    list.host[outputs.count++] = batch.slot_outputs[i];
  }
  return outputs;
}

int32_t BatchUpload::PackTasks() {
  SPECD_CHECK(!arena_->full() && !answers_->full());
  while (count_ < room_) {
    const Task& task = batch_.tasks[first_ + count_];
    // A scored task has a row for every token, and no place after the last.
    SPECD_CHECK(NumPlaces(task) <= limits_.max_draft + 1);
    bytes_left_ = arena_->size_bytes() - arena_->used();
    // The limit holds even if there is room: the result of a task must not depend on the tasks next
    // to it.
    if (ListBytes(task) > ListBytesMax(batch_.target.vocab_size, limits_.max_draft)) break;
    if (!PackTask(task, batch_, &rows_, arena_, &tasks_.host[count_])) break;
    ++count_;
  }
  return count_;
}

int32_t BatchUpload::Fill(char* memory) const {
  RoundBatch batch = batch_;
  batch.target = OnDevice(batch.target, rows_.target);
  batch.draft = OnDevice(batch.draft, rows_.draft);
  batch.mask = OnDevice(batch.mask, rows_.masks, batch.target.vocab_size);
  batch.tasks = tasks_.device;
  batch.num_tasks = count_;
  batch.outcomes = outcomes_.device();
  batch.tokens = tokens_.device();
  batch.path = path_.device();
  batch.tokens_stride = limits_.max_output();
  batch.scores = scores_.device();
  batch.samples = samples_.device();
  batch.decisions = decisions_.device();
  batch.decisions_stride = NumDecisions(batch_, limits_.max_draft);
  batch.slot_outputs = slot_outputs_.arrays;
  batch.num_slot_outputs = slot_outputs_.count;
  // Draft tokens from host memory are packed with the tasks.
  if (batch.draft_tokens.space == MemorySpace::kHost) batch.draft_tokens = {};
  return round_.Fill(batch, batch_.tasks + first_, tasks_.host, memory);
}

void BatchUpload::CopyBack() const {
  outcomes_.CopyBack(count_);
  tokens_.CopyBack(count_);
  path_.CopyBack(count_);
  scores_.CopyBack(count_);
  samples_.CopyBack(count_);
  decisions_.CopyBack(count_);
}

}  // namespace specd
