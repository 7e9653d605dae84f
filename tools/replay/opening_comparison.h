// CompareOpenings says which parameters two sequences were opened with differ, for diff.
//
// An opening holds what no round records: max_tokens, stop ids, which lists were given, the kind of
// a constraint. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

// Sentences with both values. Seed and method are left out, because every task has them.
std::vector<std::string> CompareOpenings(const TraceOpening& a, const TraceOpening& b);

// What the engines said of their model, which holds for every sequence.
std::vector<std::string> CompareModels(const TraceInfo& a, const TraceInfo& b);

}  // namespace specd::replay
