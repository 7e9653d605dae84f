#include "tools/replay/doctor/round_rows.h"

namespace specd::replay {

absl::Status RoundRows::Read(const RoundRebuilder& rebuilder, PlaceRows* rows) {
  const size_t num_tasks = rebuilder.tasks().size();
  p_.assign(num_tasks, {});
  q_.assign(num_tasks, {});
  residuals_.assign(num_tasks, {});
  uint64_t num_bytes = 0;
  for (size_t i = 0; i < num_tasks; ++i) {
    const Draft& draft = rebuilder.batch().tasks[i].draft;
    const auto num_places = static_cast<size_t>(draft.num_nodes) + 1;
    p_[i].resize(num_places);
    q_[i].resize(num_places);
    residuals_[i].assign(num_places, -1.0);
    for (size_t place = 0; place < num_places && num_bytes < kBytesMax; ++place) {
      absl::Status status = rows->Read(rebuilder, i, static_cast<int32_t>(place));
      if (!status.ok()) return status;
      if (rows->has_p()) p_[i][place].assign(rows->p().begin(), rows->p().end());
      if (rows->has_q()) q_[i][place].assign(rows->q().begin(), rows->q().end());
      if (rows->has_p() && rows->has_q()) residuals_[i][place] = rows->residual_mass();
      num_bytes += (p_[i][place].size() + q_[i][place].size()) * sizeof(float);
    }
  }
  return absl::OkStatus();
}

}  // namespace specd::replay
