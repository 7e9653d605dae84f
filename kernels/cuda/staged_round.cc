#include "kernels/cuda/staged_round.h"

#include <algorithm>

#include "kernels/bodies/read_ahead.h"

namespace specd {

StagedRound::StagedRound(int32_t max_tasks, int32_t max_draft, Arena* arena)
    : max_draft_(max_draft),
      round_(arena->Take<FusedRound>(1)),
      rows_(arena->Take<AheadRow>(int64_t{max_tasks} * NumSlots(max_draft))),
      arrivals_(arena->Take<int32_t>(max_tasks)) {}

void StagedRound::Fill(const RoundBatch& batch, const ChainTask* tasks, char* workspaces) const {
  std::fill_n(arrivals_.host, batch.num_tasks, 0);
  *round_.host = {.batch = batch,
                  .rows = rows_.device,
                  .num_rows = ListRowsAhead(tasks, batch.num_tasks, max_draft_, rows_.host),
                  .arrivals = arrivals_.device,
                  .workspaces = workspaces,
                  .max_draft = max_draft_};
}

}  // namespace specd
