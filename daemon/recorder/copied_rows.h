// RowsOf and FindRow look up the copied rows of a round, for the checks of the recorder's thread.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "daemon/recorder/round_copy.h"

namespace specd {

// The rows of one tensor, by index. REQUIRES: the rows of the copy are sorted, as RoundCopier
// leaves them.
std::span<const RowCopy> RowsOf(const RoundCopy& round, TraceTensor tensor);

// The place of a row among those of its tensor; nothing if it was not recorded.
std::optional<uint32_t> FindRow(std::span<const RowCopy> rows, uint32_t row);

}  // namespace specd
