// CompareOpenings says which parameters two sequences were opened with differ, for diff; NumberText
// shows one of them.
//
// An opening holds what no round records: max_tokens, stop ids, which lists were given, the kind of
// a constraint. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

// The parts of an opening that are compared. The parameters of a fork are those of its parent, so a
// trace that does not name the parent has none of them.
enum class OpeningParts { kAll, kWithoutParameters };

// Sentences with both values. Seed and method are left out, because every task has them.
std::vector<std::string> CompareOpenings(const TraceOpening& a, const TraceOpening& b,
                                         OpeningParts parts);

// Returns the value of a parameter that is a number: the name of a choice, "true", "0.7". Empty:
// the default.
std::string NumberText(std::string_view name, std::optional<double> number);

// Compares the models that the engines named at their openings; a model holds for every sequence.
std::vector<std::string> CompareModels(const TraceInfo& a, const TraceInfo& b);

}  // namespace specd::replay
