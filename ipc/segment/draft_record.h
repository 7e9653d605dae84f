// WriteDraft, ReadDraft and the others carry a round's records through the session segment. A
// SequenceInput goes in as bytes, and a SequenceResult comes back (ipc/segment/layout.h,
// docs/PROTOCOL.md).
//
// Only ReadDraft judges an input's numbers; its result is inside the limits and the bound tensors.
// The readers work on private copies. Pure functions, safe from any thread.
#pragma once

#include <cstdint>

#include "ipc/base/limits.h"
#include "ipc/segment/layout.h"
#include "kernels/core/sequence_round.h"

namespace specd {

// The number of bound rows; 0 while a tensor is not bound.
struct RowLimits {
  uint64_t target_rows = 0;
  uint64_t draft_rows = 0;
  uint64_t mask_rows = 0;
  bool has_draft_tokens = false;
  bool has_draft_tree = false;
};

// Writes an input as one record of the draft area. Null pointers are allowed for draft.kinds (all
// one-hot), draft.draft_rows, mask_rows, parents and the side channel. Without draft.draft_rows
// ReadDraft refuses sampled tokens. target_rows is null if target_argmax is not. Only the handle of
// a discarded input is written. REQUIRES: at most max_draft nodes.
void WriteDraft(const SegmentLayout& layout, const SequenceInput& input, char* record);

// Copies a record out of memory that the engine can write. Optional parts that the copied flags do
// not name are not copied.
void CopyDraft(const SegmentLayout& layout, const char* from, char* record);

// Reads and checks a private record. If it holds an impossible value, the input has a refusal and
// nothing else. Parents that make a chain are left out. The pointers lie in the record.
SequenceInput ReadDraft(const SegmentLayout& layout, const SessionLimits& limits,
                        const RowLimits& rows, const char* record);

// Writes a result as one record of the result area. REQUIRES: the result is inside the limits.
void WriteResult(const SegmentLayout& layout, const SessionLimits& limits,
                 const SequenceResult& result, char* record);

// Copies and reads a record that the daemon wrote. Returns false if the record claims more than it
// has room for. The pointers lie in `record`, which is private memory.
bool ReadResult(const SegmentLayout& layout, const SessionLimits& limits, const char* from,
                char* record, SequenceResult* result);

}  // namespace specd
