// ScalarCheck computes the decisions of a recorded task again from its recorded numbers, without
// rows.
//
// It checks each coin against its key, each accept test of `token` and one-hot bound of `block`
// (CONTRACT §9.5), the walk over the places, and the tokens of the outcome. It shares no code with
// the bodies of kernels/ except the coins. Pure function.
#pragma once

#include <cstdint>

#include "daemon/trace/trace_record.h"
#include "tools/replay/scalar_findings.h"

namespace specd::replay {

// REQUIRES: CheckTask passed.
ScalarFindings CheckScalars(const TraceTask& task, int32_t vocab_size);

}  // namespace specd::replay
