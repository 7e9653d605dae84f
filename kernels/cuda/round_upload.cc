#include "kernels/cuda/round_upload.h"

#include <algorithm>

#include "kernels/bodies/resolve.h"
#include "kernels/warps/list_rows.h"
#include "kernels/warps/tile_pass.h"

namespace specd {

namespace {

// The parts of a round's memory, one after another. Without memory, only their sizes.
struct RoundMemory {
  RoundMemory(char* memory, int32_t vocab_size, int32_t max_draft, int32_t recent_room,
              int64_t num_tasks)
      : carver(memory),
        record_tokens(carver.Take<TokenId>(num_tasks * (max_draft + 1))),
        workspaces(carver.Take<char>(num_tasks * FusedWorkspaceBytes(vocab_size, max_draft))),
        fallen(carver.Take<FallenTask>(num_tasks)),
        tasks(carver.Take<Task>(num_tasks)),
        scratch(carver.Take<char>(num_tasks * ResolveBytes(max_draft, recent_room))) {}

  internal::Carver carver;
  TokenId* record_tokens;  // first, so that a launch knows them without the round
  char* workspaces;
  FallenTask* fallen;
  Task* tasks;
  char* scratch;
};

}  // namespace

int64_t RoundMemoryBytes(int32_t vocab_size, int32_t max_draft, int32_t recent_room,
                         int32_t max_tasks) {
  return RoundMemory(nullptr, vocab_size, max_draft, recent_room, max_tasks).carver.used();
}

TokenId* RecordTokensIn(char* memory) { return reinterpret_cast<TokenId*>(memory); }

RoundUpload::RoundUpload(int32_t max_tasks, int32_t max_draft, Arena* arena)
    : arena_(*arena),
      max_draft_(max_draft),
      round_(arena->Take<FusedRound>(1)),
      rows_(arena->Take<AheadRow>(int64_t{max_tasks} * NumTaskRows(max_draft))),
      row_arrivals_(arena->Take<int32_t>(int64_t{max_tasks} * NumTaskRows(max_draft) + 1)),
      progress_(arena->Take<TaskProgress>(max_tasks)),
      num_fallen_(arena->Take<int32_t>(1)) {}

int32_t RoundUpload::Fill(const RoundBatch& batch, const Task* tasks, const Task* packed,
                          char* memory) const {
  const RoundMemory parts(memory, batch.target.vocab_size, max_draft_, batch.slots.recent_room,
                          batch.num_tasks);
  *round_.host = {.batch = batch,
                  .rows = rows_.device,
                  .row_arrivals = row_arrivals_.device,
                  .progress = progress_.device,
                  .fallen = {.count = num_fallen_.device, .tasks = parts.fallen},
                  .workspaces = parts.workspaces,
                  .max_draft = max_draft_};
  if (std::any_of(tasks, tasks + batch.num_tasks, NeedsResolve)) {
    round_.host->resolve = {batch.tasks, parts.tasks, parts.scratch, max_draft_};
    round_.host->batch.tasks = parts.tasks;
  }
  *num_fallen_.host = 0;
  RoundBatch of_host = batch;
  of_host.tasks = tasks;
  const auto row_of = [&](int32_t task, int32_t task_row) {
    const Draft& draft = packed[task].draft;
    const uint32_t* const rows = IsTargetRow(task_row) ? draft.target_rows : draft.draft_rows;
    return arena_.OnHost(rows)[IndexOfTaskRow(task_row)];
  };
  ListRowsAhead(of_host, max_draft_, row_of, rows_.host, row_arrivals_.host, progress_.host,
                round_.host);
  return round_.host->num_launches;
}

}  // namespace specd
