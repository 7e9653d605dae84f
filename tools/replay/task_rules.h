// CheckTask judges a recorded task before it is run or counted: every index, size and number that a
// backend trusts.
//
// The record comes from an untrusted file. Pure function.
#pragma once

#include "absl/status/status.h"
#include "daemon/trace/trace_record.h"

namespace specd::replay {

// INVALID_ARGUMENT names the member. A task that passes has arrays of the sizes that its draft
// demands, ids inside the vocabulary where a backend uses them as an index, and finite numbers.
absl::Status CheckTask(const TraceRound& round, const TraceTask& task, int32_t vocab_size);

}  // namespace specd::replay
