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
#include "kernels/core/round.h"

namespace specd {

// ---- as engine and session see them -------------------------------------------------------------

// A row of the draft model from which num_children tokens are drawn. Values as in specd.h.
struct ChildrenCall {
  uint64_t sequence = 0;
  uint32_t row = 0;
  int32_t mask_row = -1;
  const TokenId* prefix = nullptr;
  uint32_t num_prefix = 0;
  uint32_t sampling = 0;
  uint32_t num_children = 0;
  uint32_t first_node = 0;
};

struct ScoreCall {
  const uint32_t* rows = nullptr;
  const TokenId* ids = nullptr;
  uint32_t num_ids = 0;
  uint32_t mode = 0;
  uint32_t num_top = 0;
  const TokenId* chosen = nullptr;
  uint32_t num_chosen = 0;
};

struct CoinsCall {
  uint64_t sequence = 0;
  std::span<const CoinRecord> coins;  // at most kCallCoinsMax
};

struct ChildrenAnswer {
  uint64_t sequence = 0;
  uint32_t status = 0;                    // SPECD_STATUS_...
  std::span<const DraftSample> children;  // at most kCallChildrenMax
};

// ---- requests: `to` and `from` are the beginning of the request area, or of a copy of it --------

// Each returns the bytes that were written. REQUIRES: as many calls as max_batch, at most.
uint32_t WriteCalls(const SegmentLayout& layout, std::span<const ChildrenCall> calls, char* to);
uint32_t WriteCalls(const SegmentLayout& layout, std::span<const ScoreCall> calls, char* to);
uint32_t WriteCalls(const SegmentLayout& layout, const CoinsCall& call, char* to);

ChildrenCall ReadChildrenCall(const SegmentLayout& layout, const char* from, uint32_t index);
ScoreCall ReadScoreCall(const SegmentLayout& layout, const char* from, uint32_t index);
CoinsCall ReadCoinsCall(const char* from, uint32_t num_coins);

// The bytes of a request with so many records.
uint64_t CallBytes(const SegmentLayout& layout, SubmissionKind kind, uint32_t num_records);

// ---- answers ------------------------------------------------------------------------------------

void WriteAnswer(const ChildrenAnswer& answer, char* to);
// False where the record says more than it has room for. `copy` is private and as large.
bool ReadAnswer(const char* from, char* copy, ChildrenAnswer* answer);

// Texts over their bound are cut.
void WriteRefusal(const absl::Status& status, char* to);
// Never OK: a refusal that cannot be read is an error too.
absl::Status ReadRefusal(const char* from);

}  // namespace specd
