// WidenRow writes a narrow draft row as a row of all ids, as a trace holds it.
//
// The ids without a column get -inf, or the probability 0 (CONTRACT §2). Pure function.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/types.h"

namespace specd {

// `rows` is the tensor of the row at `from`, and columns[id] the column of an id, -1: none.
// REQUIRES: there is room for vocab_size elements at `to`.
void WidenRow(const TensorView& rows, const int32_t* columns, const std::byte* from, std::byte* to);

}  // namespace specd
