// The functions here tell how much memory a session and its sequences may use, for MemoryBudget.
//
// They count what may be touched, so that a budget holds however an engine uses its session. Pure
// functions; safe from any thread.
#pragma once

#include <cstdint>

#include "daemon/session/event_queue.h"
#include "ipc/base/limits.h"
#include "speculative/params/params.h"
#include "speculative/processors/token_history.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {

// The room for events that wait for the publisher.
EventQueue::Capacity EventCapacityOf(const SessionLimits& limits);

// Everything that Session::Create takes on the CPU: the segment, the scratch of a round, tables and
// queues. `threads` is the number of a round's workers. REQUIRES: ValidateLimits(limits).ok().
uint64_t SessionBytes(const SessionLimits& limits, int32_t threads);

// The bytes that the building of one sequence touches, those of the sequence included.
uint64_t BuildBytes(const SequenceParams& params, const SequenceHistory& history);

// The earlier ids in the event of an opening, until the publisher has sent it. A few are part of
// what a session costs.
uint64_t TailBytes(size_t num_ids);

// One open sequence, beyond its place in the tables. A constraint's states are not in it
// (speculative/grammar/base/grammar_memory.h), nor are injected coins.
uint64_t SequenceBytes(const Sequence& sequence, const SequenceParams& params);

}  // namespace specd
