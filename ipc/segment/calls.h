// WriteCalls, ReadDraftCall and the others carry calls through the session segment: draft tokens,
// scores of given ids, coins, forced ids.
//
// Calls travel through the same two rings as rounds; the ring entry's kind tells them apart. An
// engine waits for the answer before it submits anything else, so one area for requests and one for
// answers is enough. These functions write and read the records in those areas; docs/PROTOCOL.md
// shows the records as tables.
//
// The readers work on a private copy and never read beyond a record. The session judges the
// numbers. A count may be larger than its list has room for; the session refuses it before it reads
// the list. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "ipc/segment/call_layout.h"
#include "ipc/segment/layout.h"
#include "kernels/core/calls.h"

namespace specd {

// ---- as engine and session see them -------------------------------------------------------------

struct CoinsCall {
  uint64_t sequence = 0;
  std::span<const CoinRecord> coins;  // at most kCallCoinsMax
};

// ---- requests: `to` and `from` are the beginning of the request area, or of a copy of it --------

// Each returns the number of bytes written. REQUIRES: at most max_batch calls.
uint32_t WriteCalls(const SegmentLayout& layout, std::span<const DraftInput> calls, char* to);
uint32_t WriteCalls(const SegmentLayout& layout, std::span<const ScoreInput> calls, char* to);
uint32_t WriteCalls(const SegmentLayout& layout, std::span<const ForcedInput> calls, char* to);
uint32_t WriteCalls(const SegmentLayout& layout, const CoinsCall& call, char* to);

DraftInput ReadDraftCall(const SegmentLayout& layout, const char* from, uint32_t index);
ScoreInput ReadScoreCall(const SegmentLayout& layout, const char* from, uint32_t index);
ForcedInput ReadForcedCall(const SegmentLayout& layout, const char* from, uint32_t index);
CoinsCall ReadCoinsCall(const char* from, uint32_t num_coins);

// Returns the bytes of a request with num_records records.
uint64_t CallBytes(const SegmentLayout& layout, SubmissionKind kind, uint32_t num_records);

// ---- answers ------------------------------------------------------------------------------------

void WriteAnswer(const DraftResult& answer, char* to);
// Returns false if the record claims more than it has room for. `copy` is private and as large as
// the record.
bool ReadAnswer(const char* from, char* copy, DraftResult* answer);

// Cuts texts over their bound.
void WriteRefusal(const absl::Status& status, char* to);
// Never returns OK: a refusal that cannot be read is an error too.
absl::Status ReadRefusal(const char* from);

}  // namespace specd
