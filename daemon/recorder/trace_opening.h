// DescribeOpening makes the record of an opening from what the engine asked for.
//
// The session calls it before it takes its lock, because a record takes memory. Pure function.
#pragma once

#include <memory>
#include <string>

#include "daemon/trace/trace_record.h"
#include "speculative/params/params.h"
#include "speculative/processors/token_history.h"

namespace specd {

// The caller fills in the handle, the method and the seed, which the sequence has later.
std::unique_ptr<TraceOpening> DescribeOpening(const std::string& request_id,
                                              const SequenceParams& params,
                                              const SequenceHistory& history);

}  // namespace specd
