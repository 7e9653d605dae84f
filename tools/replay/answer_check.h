// CompareAnswers compares a recorded answer with that of a replay, to the bit.
//
// Pure function.
#pragma once

#include <string>
#include <vector>

#include "daemon/trace/trace_record.h"
#include "tools/replay/round_rebuilder.h"

namespace specd::replay {

// The differences as sentences; empty: equal. `i` is the task's index in the rebuilder's batch.
// The record of a staged round has neither path nor scores if the engine asked for none.
std::vector<std::string> CompareAnswers(const TraceTask& recorded, const RoundRebuilder& replayed,
                                        size_t i, bool is_staged);

}  // namespace specd::replay
