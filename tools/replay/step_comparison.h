// CompareSteps says what differs between one sequence's parts of two rounds, for diff.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

// The differences between two steps as sentences with values. Causes come before their effects.
// Empty: equal.
struct StepDifference {
  // "parameters", "coins", "draft", "rows", "grammar", "outcome", or several with "or" between
  // them. "decision": equal inputs have other tokens, which is a fault of specd.
  std::string cause;
  std::string text;
};
std::vector<StepDifference> CompareSteps(const TraceRound& a_round, const TraceTask& a,
                                         const TraceRound& b_round, const TraceTask& b);

}  // namespace specd::replay
