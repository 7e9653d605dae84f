// Calls: what an engine asks for besides rounds: draft tokens, scores of given ids, coins.
//
// They travel through the same two rings as rounds; the slot's kind says what it names. An engine
// waits for the answer before it submits anything else, so one area for requests and one for
// answers is enough. Here are the records that lie in them and the functions that write and read
// them; docs/PROTOCOL.md shows them as tables.
//
// The readers work on a private copy and never read beyond a record. What a number means is judged
// by the session: a count may be larger than its list has room for, and is refused before the list
// is looked at. Pure functions, safe from any thread.
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

// Each returns the bytes that were written. REQUIRES: as many calls as max_batch, at most.
uint32_t WriteCalls(const SegmentLayout& layout, std::span<const DraftInput> calls, char* to);
uint32_t WriteCalls(const SegmentLayout& layout, std::span<const ScoreInput> calls, char* to);
uint32_t WriteCalls(const SegmentLayout& layout, const CoinsCall& call, char* to);

DraftInput ReadDraftCall(const SegmentLayout& layout, const char* from, uint32_t index);
ScoreInput ReadScoreCall(const SegmentLayout& layout, const char* from, uint32_t index);
CoinsCall ReadCoinsCall(const char* from, uint32_t num_coins);

// The bytes of a request with so many records.
uint64_t CallBytes(const SegmentLayout& layout, SubmissionKind kind, uint32_t num_records);

// ---- answers ------------------------------------------------------------------------------------

void WriteAnswer(const DraftResult& answer, char* to);
// False where the record says more than it has room for. `copy` is private and as large.
bool ReadAnswer(const char* from, char* copy, DraftResult* answer);

// Texts over their bound are cut.
void WriteRefusal(const absl::Status& status, char* to);
// Never OK: a refusal that cannot be read is an error too.
absl::Status ReadRefusal(const char* from);

}  // namespace specd
