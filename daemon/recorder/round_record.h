// MakeTraceRound turns the copy of a round into the record that a trace keeps.
//
// The writer's thread calls it: records have lists of their own, which take memory. Pure function.
#pragma once

#include "daemon/recorder/round_copy.h"
#include "daemon/trace/trace_record.h"

namespace specd {

// Fills *record, whose rows have hashes and no offsets: copy.rows[i] is record->rows[i].
void MakeTraceRound(const RoundCopy& copy, TraceRound* record);

}  // namespace specd
