// The records of a round in the session segment: a SequenceInput as bytes on its way in, a
// SequenceResult on its way back (ipc/segment/layout.h, docs/PROTOCOL.md).
//
// ReadDraft is the one place that judges an input's numbers; after it every number is inside the
// limits and the bound tensors. The readers work on private copies. Pure functions, any thread.
#pragma once

#include <cstdint>

#include "ipc/base/limits.h"
#include "ipc/segment/layout.h"
#include "kernels/core/sequence_round.h"

namespace specd {

// How many rows are bound; 0 while a tensor is not.
struct RowLimits {
  uint64_t target_rows = 0;
  uint64_t draft_rows = 0;
  uint64_t mask_rows = 0;
  bool has_draft_tokens = false;
};

// Writes an input as one record of the draft area. draft.kinds may be null (all one-hot), and so
// may draft.draft_rows (ReadDraft then refuses sampled tokens), mask_rows, parents and the side
// channel; target_rows is null where target_argmax is not. Only the handle of a discarded input is
// written. REQUIRES: at most max_draft nodes.
void WriteDraft(const SegmentLayout& layout, const SequenceInput& input, char* record);

// Copies a record out of memory that the engine can write. Optional parts that the copied flags do
// not name are not copied.
void CopyDraft(const SegmentLayout& layout, const char* from, char* record);

// Reads and checks a private record. Where it says something impossible, the input has a refusal
// and nothing else. Parents that make a chain are left out. The pointers lie in the record.
SequenceInput ReadDraft(const SegmentLayout& layout, const SessionLimits& limits,
                        const RowLimits& rows, const char* record);

// Writes a result as one record of the result area. REQUIRES: it is inside the limits.
void WriteResult(const SegmentLayout& layout, const SessionLimits& limits,
                 const SequenceResult& result, char* record);

// Copies and reads a record that the daemon wrote. False where it says more than it has room for.
// The pointers lie in `record`, private memory.
bool ReadResult(const SegmentLayout& layout, const SessionLimits& limits, const char* from,
                char* record, SequenceResult* result);

}  // namespace specd
