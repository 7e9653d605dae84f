#include "kernels/cuda/staged_round.h"

#include "kernels/bodies/list_rows.h"

namespace specd {

StagedRound::StagedRound(int32_t max_tasks, int32_t max_draft, Arena* arena)
    : arena_(*arena),
      max_draft_(max_draft),
      round_(arena->Take<FusedRound>(1)),
      rows_(arena->Take<AheadRow>(int64_t{max_tasks} * NumSlots(max_draft))),
      row_arrivals_(arena->Take<int32_t>(int64_t{max_tasks} * NumSlots(max_draft))),
      progress_(arena->Take<TaskProgress>(max_tasks)) {}

bool StagedRound::Fill(const RoundBatch& batch, const ChainTask* tasks, const ChainTask* staged,
                       char* workspaces) const {
  *round_.host = {.batch = batch,
                  .rows = rows_.device,
                  .row_arrivals = row_arrivals_.device,
                  .progress = progress_.device,
                  .workspaces = workspaces,
                  .max_draft = max_draft_};
  RoundBatch of_host = batch;
  of_host.tasks = tasks;
  const auto row_of = [&](int32_t task, int32_t slot) {
    const DraftChain& chain = staged[task].chain;
    const uint32_t* const rows = IsTargetSlot(slot) ? chain.target_rows : chain.draft_rows;
    return arena_.OnHost(rows)[PlaceOfSlot(slot)];
  };
  ListRowsAhead(of_host, max_draft_, row_of, rows_.host, row_arrivals_.host, progress_.host,
                round_.host);
  return round_.host->may_defer;
}

}  // namespace specd
