// NeededRows finds the rows that the decisions of a round need, for the floor of `verify` and for
// `accept`.
//
// Pure functions. Places that a record does not name are those that the method's rule looks at.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/bench/read_floor.h"
#include "tools/bench/round_set.h"

namespace specd::bench {

// The memory of these rows, each row once. REQUIRES: a tree's answer has its decisions.
std::vector<MemorySpan> NeededRows(const RoundSet& set, int32_t round, const RoundAnswer& answer);

// The target rows and draft rows that each sequence brings.
int32_t NumRowsGiven(const RoundSet& set);

}  // namespace specd::bench
