#include "kernels/cuda/round_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/core/staged_turn.h"
#include "kernels/cuda/batch_upload.h"
#include "kernels/cuda/done_word.h"
#include "kernels/cuda/upload_arena.h"

namespace specd {

namespace {

// An arena in memory that another object owns.
class PartOfMemory : public Arena {
 public:
  void Begin(char* host, char* device, size_t size_bytes) { Reset(host, device, size_bytes); }
};

// The memory of one staged round and of its answers.
struct Area {
  FetchHeader* header = nullptr;
  PartOfMemory tasks;
  PartOfMemory answers;
  std::optional<BatchUpload> batch;
};

absl::Status NotOnDevice(const char* what) {
  return absl::InvalidArgumentError(fmt::format(
      "the {} of a staged round must lie in memory of the device that rounds run on, and do not: "
      "nobody could copy them when the device comes to the round; bind device memory, or submit "
      "the round instead of staging it",
      what));
}

// A device must be able to run the round by itself at any later time.
absl::Status CheckStageable(const RoundBatch& batch, const BackendLimits& limits) {
  const auto is_elsewhere = [](MemorySpace space) { return space != MemorySpace::kDevice; };
  if (batch.target.num_rows > 0 && is_elsewhere(batch.target.space)) {
    return NotOnDevice("target rows");
  }
  if (batch.draft.num_rows > 0 && is_elsewhere(batch.draft.space)) return NotOnDevice("draft rows");
  if (batch.mask.num_rows > 0 && is_elsewhere(batch.mask.space)) return NotOnDevice("masks");
  if (batch.draft_tokens.ids != nullptr && is_elsewhere(batch.draft_tokens.space)) {
    return NotOnDevice("draft tokens");
  }
  for (int32_t i = 0; i < batch.num_slot_outputs; ++i) {
    if (is_elsewhere(batch.slot_outputs[i].space)) return NotOnDevice("slot outputs");
  }
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    const Task& task = batch.tasks[i];
    if (task.kind != TaskKind::kVerify) {
      return absl::InvalidArgumentError(fmt::format(
          "task {} of a staged round is of kind {}; a staged round only verifies drafts (kind {}): "
          "submit it instead of staging it",
          i, static_cast<uint32_t>(task.kind), static_cast<uint32_t>(TaskKind::kVerify)));
    }
    if (task.parents_by_slot && is_elsewhere(batch.draft_tree.space())) {
      return NotOnDevice("parents");
    }
    SPECD_CHECK(limits.num_slots == 0 ? !task.continues : task.slot < limits.num_slots);
  }
  return absl::OkStatus();
}

// Marks tasks until the lists of the others fit: first the tasks that are too long alone, and then
// the longest. The others may take the room of the first `num_fitting` tasks and of the bytes left.
// The result may still not fit, because tasks bring more than lists. Returns the number of marked
// tasks, at least one.
int32_t LeaveOutLongest(const RoundBatch& batch, int32_t num_fitting, size_t bytes_left,
                        size_t longest_bytes) {
  std::vector<std::pair<size_t, int32_t>> lists;
  size_t sum = 0;
  size_t room = bytes_left;
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    lists.emplace_back(ListBytes(batch.tasks[i]), i);
    sum += lists.back().first;
    if (i < num_fitting) room += lists.back().first;
  }
  std::ranges::sort(lists, std::greater());
  int32_t num_left_out = 0;
  for (const auto& [size, task] : lists) {
    if (num_left_out > 0 && size <= longest_bytes && sum <= room) break;
    batch.outcomes[task] = {.status = OutcomeStatus::kNoRoom};
    sum -= size;
    ++num_left_out;
  }
  return num_left_out;
}

absl::Status Failure(const char* what, const GpuResult& result) {
  return absl::InternalError(
      fmt::format("the GPU failed {}: {}; start the process again", what, result.text()));
}

// The bytes of one area.
size_t TaskBytes(const BackendLimits& limits) {
  return Arena::Aligned(TaskArenaBytes(limits.vocab_size, limits.max_draft, limits.max_batch));
}
size_t AnswerBytes(const BackendLimits& limits) {
  return Arena::Aligned(AnswerArenaBytes(limits.max_batch));
}
size_t PinnedBytes(const BackendLimits& limits) {
  return kStagedRoundsMax * (sizeof(FetchHeader) + TaskBytes(limits) + AnswerBytes(limits));
}

}  // namespace

struct RoundQueue::Memory {
  GpuResult Allocate(GpuDriver* driver, const BackendLimits& limits);

  Area& AreaOf(uint64_t round) { return areas[(round - 1) % kStagedRoundsMax]; }
  uint64_t* DoneOf(uint64_t round) const { return plan.done + (round - 1) % kStagedRoundsMax; }
  char* tasks_begin() const { return device.get() + sizeof(FetchHeader); }

  // The memory that the host reads and writes: areas, their answers, done words.
  PinnedMemory pinned;
  PinnedMemory answers;
  PinnedMemory done;
  // The memory of the device alone. It is zeroed, because the first turn may come before the first
  // round.
  ZeroedMemory turn;
  ZeroedMemory device;
  ZeroedMemory kept;
  ZeroedMemory recent;
  DeviceMemory rounds;  // RoundMemoryBytes

  size_t task_bytes = 0;  // the size of an area's arenas
  size_t answer_bytes = 0;
  StagedPlan plan;
  SlotStates slots;
  std::array<Area, kStagedRoundsMax> areas;
};

GpuResult RoundQueue::Memory::Allocate(GpuDriver* driver, const BackendLimits& limits) {
  const int32_t max_tasks = limits.max_batch;
  task_bytes = TaskBytes(limits);
  answer_bytes = AnswerBytes(limits);
  const size_t area_bytes = sizeof(FetchHeader) + task_bytes;
  const int32_t recent_room = RecentRoomMax(limits);
  const size_t slot_bytes = limits.num_slots * sizeof(uint32_t);

  GpuResult result = pinned.Allocate(driver, kStagedRoundsMax * area_bytes);
  if (result.ok()) result = answers.Allocate(driver, kStagedRoundsMax * answer_bytes);
  if (result.ok()) result = done.Allocate(driver, kStagedRoundsMax * sizeof(uint64_t));
  if (result.ok()) result = turn.Allocate(driver, sizeof(StagedTurn));
  if (result.ok()) result = device.Allocate(driver, area_bytes);
  if (result.ok()) result = kept.Allocate(driver, slot_bytes);
  if (result.ok()) result = recent.Allocate(driver, slot_bytes * recent_room);
  if (result.ok()) {
    result = rounds.Allocate(
        driver, RoundMemoryBytes(limits.vocab_size, limits.max_draft, recent_room, max_tasks));
  }
  if (!result.ok()) return result;

  for (int32_t i = 0; i < kStagedRoundsMax; ++i) {
    areas[i].header = reinterpret_cast<FetchHeader*>(pinned.get() + i * area_bytes);
    *areas[i].header = {};
  }
  plan.areas = pinned.get();
  plan.area_bytes = area_bytes;
  plan.num_areas = kStagedRoundsMax;
  plan.done = reinterpret_cast<uint64_t*>(done.get());
  std::fill_n(plan.done, kStagedRoundsMax, uint64_t{0});
  plan.turn = reinterpret_cast<StagedTurn*>(turn.get());
  plan.destination = device.get();
  plan.round = reinterpret_cast<FusedRound*>(tasks_begin());  // the round is first in the arena
  if (limits.num_slots > 0) {
    slots = {.kept = reinterpret_cast<uint32_t*>(kept.get()),
             .recent = reinterpret_cast<TokenId*>(recent.get()),
             .recent_room = recent_room};
  }
  return result;
}

RoundQueue::RoundQueue(GpuDriver* driver, const BackendLimits& limits)
    : driver_(driver), limits_(limits) {}

RoundQueue::~RoundQueue() = default;

absl::Status RoundQueue::TakeMemory() {
  if (memory_ != nullptr) return absl::OkStatus();
  auto memory = std::make_unique<Memory>();
  const GpuResult result = memory->Allocate(driver_, limits_);
  if (!result.ok()) {
    return absl::ResourceExhaustedError(fmt::format(
        "no memory for staged rounds of max_batch {}, max_draft {}, vocab_size {} and {} slots, {} "
        "bytes of it page-locked in the host: {}; lower them or free memory of that kind",
        limits_.max_batch, limits_.max_draft, limits_.vocab_size, limits_.num_slots,
        PinnedBytes(limits_), result.text()));
  }
  memory_ = std::move(memory);
  return absl::OkStatus();
}

// Refuses a CUDA stream of another device. Its launches would fail, and the failure would look like
// a fault of this device.
absl::Status RoundQueue::CheckDevice(void* stream) const {
  // After a fault every call fails, for any CUDA stream.
  GpuResult result = driver_->Check();
  if (!result.ok()) return Failure("before staged rounds were enqueued", result);
  size_t device = 0;
  result = driver_->FindDevice(stream, &device);
  if (!result.ok()) {
    return absl::InvalidArgumentError(fmt::format(
        "cuda_stream is not a stream of this process: {}; give a cudaStream_t that is open",
        result.text()));
  }
  if (device == driver_->device_in_use()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "cuda_stream is of device {}, and rounds run on device {}; give a stream of that device (a "
      "default stream is of the one that is current), or name a stream of the other one in "
      "specd_options when the engine is opened",
      device, driver_->device_in_use()));
}

absl::Status RoundQueue::Enqueue(void* stream, int32_t num_tasks) {
  if (stream == nullptr) {
    return absl::InvalidArgumentError(
        "staged rounds are enqueued on a stream of the caller's, and it is NULL; give the "
        "cudaStream_t that is capturing, or cudaStreamLegacy for the default one");
  }
  if (num_tasks < 1 || num_tasks > limits_.max_batch) {
    return absl::InvalidArgumentError(
        fmt::format("staged rounds are enqueued for {} sequences; give 1 to max_batch, which is {}",
                    num_tasks, limits_.max_batch));
  }
  const absl::Status is_ours = CheckDevice(stream);
  if (!is_ours.ok()) return is_ours;
  const absl::Status taken = TakeMemory();
  if (!taken.ok()) return taken;

  // The bounds cover every round, because the round of a turn is not known yet.
  const RoundBounds bounds{.num_tasks = limits_.max_batch,
                           .max_draft = limits_.max_draft,
                           .vocab_size = limits_.vocab_size,
                           .num_launches = 3,
                           .usual_tasks = num_tasks};
  StagedPlan plan = memory_->plan;
  plan.usual_bytes = UsualFetchBytes(bounds.usual_tasks);
  driver_->EnqueueOn(stream);
  GpuResult result = driver_->LaunchTakeStaged(plan);
  if (result.ok()) result = driver_->LaunchResolve(plan.round, bounds);
  if (result.ok()) result = driver_->LaunchRound(plan.round, bounds);
  if (result.ok() && limits_.records_staged) {
    result = driver_->LaunchRecord(plan.round, RecordTokensIn(memory_->rounds.get()), bounds);
  }
  if (result.ok()) result = driver_->LaunchEndStaged(plan);
  driver_->EnqueueOn(nullptr);
  if (result.ok()) return absl::OkStatus();
  return Failure("to enqueue staged rounds; do not launch what was captured", result);
}

absl::Status RoundQueue::Stage(const RoundBatch& batch) {
  const absl::Status stageable = CheckStageable(batch, limits_);
  if (!stageable.ok()) return stageable;
  if (num_staged_ - num_collected_ == kStagedRoundsMax) {
    return absl::UnavailableError(
        fmt::format("{} rounds are staged and have not been collected, which is the most there may "
                    "be; collect one first",
                    kStagedRoundsMax));
  }
  const absl::Status taken = TakeMemory();
  if (!taken.ok()) return taken;

  // No turn reads the area: its last round has been collected, and the area still has that round's
  // number.
  const uint64_t number = num_staged_ + 1;
  Area& area = memory_->AreaOf(number);
  const size_t index = (number - 1) % kStagedRoundsMax;
  char* const answers = memory_->answers.get() + index * memory_->answer_bytes;
  area.tasks.Begin(reinterpret_cast<char*>(area.header + 1), memory_->tasks_begin(),
                   memory_->task_bytes);
  area.answers.Begin(answers, answers, memory_->answer_bytes);
  const RowUpload no_rows(driver_, nullptr, 0);  // all rows lie on the device
  RoundBatch staged = batch;
  staged.slots = memory_->slots;
  BatchUpload& tasks = area.batch.emplace(
      staged, 0, limits_.max_batch, limits_,
      BatchRows{.target = no_rows, .draft = no_rows, .masks = no_rows}, &area.tasks, &area.answers);
  const int32_t num_fitting = tasks.PackTasks();
  if (num_fitting < batch.num_tasks) {
    const int32_t num_left_out =
        LeaveOutLongest(batch, num_fitting, tasks.bytes_left(),
                        ListBytesMax(limits_.vocab_size, limits_.max_draft));
    return absl::ResourceExhaustedError(
        fmt::format("a staged round has no room for the lists of ids of all these {} sequences; "
                    "stage it without the {} that have the longest",
                    batch.num_tasks, num_left_out));
  }
  tasks.Fill(memory_->rounds.get());
  area.header->size_bytes = sizeof(FetchHeader) + area.tasks.used();
  PublishWord(number, &area.header->number);
  num_staged_ = number;
  return absl::OkStatus();
}

absl::StatusOr<bool> RoundQueue::Collect() {
  if (num_collected_ == num_staged_) return false;
  const uint64_t number = num_collected_ + 1;
  if (LookAtWord(memory_->DoneOf(number)) != number) {
    const GpuResult result = driver_->Check();
    if (!result.ok()) return Failure("before a staged round was done", result);
    return false;
  }
  memory_->AreaOf(number).batch->CopyBack();
  num_collected_ = number;
  return true;
}

}  // namespace specd
