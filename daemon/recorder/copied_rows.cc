#include "daemon/recorder/copied_rows.h"

#include <algorithm>

namespace specd {

std::span<const RowCopy> RowsOf(const RoundCopy& round, TraceTensor tensor) {
  const auto is_before = [](const RowCopy& row, TraceTensor wanted) { return row.tensor < wanted; };
  const auto is_after = [](TraceTensor wanted, const RowCopy& row) { return wanted < row.tensor; };
  const auto first = std::lower_bound(round.rows.begin(), round.rows.end(), tensor, is_before);
  const auto last = std::upper_bound(first, round.rows.end(), tensor, is_after);
  return {first, last};
}

std::optional<uint32_t> FindRow(std::span<const RowCopy> rows, uint32_t row) {
  const auto found =
      std::lower_bound(rows.begin(), rows.end(), row,
                       [](const RowCopy& copy, uint32_t wanted) { return copy.index < wanted; });
  if (found == rows.end() || found->index != row) return std::nullopt;
  return static_cast<uint32_t>(found - rows.begin());
}

}  // namespace specd
