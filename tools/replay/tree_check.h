// CheckTreeScalars is CheckScalars for drafts that are trees.
//
// Pure function.
#pragma once

#include "daemon/trace/trace_record.h"
#include "tools/replay/scalar_findings.h"

namespace specd::replay {

// REQUIRES: CheckTask passed, and DraftTree::IsTree.
ScalarFindings CheckTreeScalars(const TraceTask& task, int32_t vocab_size);

}  // namespace specd::replay
