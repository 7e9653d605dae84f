// SequenceInput and SequenceResult carry one sequence's part of a round for the engine, the session
// and the verifier.
//
// One record serves every layer. ipc reads a SequenceInput from shared memory and checks it.
// speculative verifies it and fills a SequenceResult, and ipc writes the result back. Plain data.
// The pointers of an input stay valid for the round, and those of a result until the next round.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/core/draft.h"
#include "kernels/core/philox.h"
#include "kernels/core/refusal.h"
#include "kernels/core/token_score.h"
#include "kernels/core/types.h"

namespace specd {

// ---- sequences ---------------------------------------------------------------------------------

// generation << 32 | owner << 16 | slot; 0 is never a sequence. The owner is the session that gave
// the handle out.
using SequenceHandle = uint64_t;

// Generations run from 1 to this maximum and start over. A handle's state, its kept tokens and its
// finish reason then fit one 64-bit word, so an engine reads them in one load.
inline constexpr uint32_t kHandleGenerationMax = (uint32_t{1} << 29) - 1;

// Slots and owners fill one half of the low word each.
inline constexpr uint32_t kSlotsMax = uint32_t{1} << 16;
inline constexpr uint32_t kHandleOwnerMax = (uint32_t{1} << 16) - 1;

struct HandleParts {
  uint32_t generation = 0;
  uint32_t owner = 0;
  uint32_t slot = 0;
};
constexpr SequenceHandle MakeHandle(const HandleParts& parts) {
  return SequenceHandle{parts.generation} << 32 | SequenceHandle{parts.owner} << 16 | parts.slot;
}
constexpr uint32_t SlotOf(SequenceHandle handle) {
  return static_cast<uint32_t>(handle) & (kSlotsMax - 1);
}
constexpr uint32_t OwnerOf(SequenceHandle handle) { return static_cast<uint32_t>(handle) >> 16; }
constexpr uint32_t GenerationOf(SequenceHandle handle) {
  return static_cast<uint32_t>(handle >> 32);
}

// ---- a sequence's part of a round ---------------------------------------------------------------

struct SequenceInput {
  SequenceHandle sequence = 0;
  Refusal refusal = Refusal::kNone;  // the refusal of the record; if set, no other field is read
  // The rows are padding or an unfinished prefill: nothing is sampled, no state changes, and the
  // answer is kOk with no token.
  bool discard = false;
  // True if the draft tokens lie at the sequence's slot in the bound draft tokens; draft.tokens is
  // then null.
  bool drafts_by_slot = false;
  // With drafts_by_slot: the parents lie at the slot too. draft.parents is then null, and
  // draft.draft_rows has the rows of places 0 .. num_nodes - 1.
  bool parents_by_slot = false;
  Draft draft;
  // One for each place, -1: unconstrained; null: all are unconstrained.
  const int32_t* mask_rows = nullptr;
  // Coins of tests and replay, instead of the keyed coins.
  const InjectedCoin* coins = nullptr;
  int32_t num_coins = 0;
};

// Values are on the wire and in specd.h.
enum class RoundStatus : uint32_t {
  kOk = 0,
  kFinished = 1,
  kBadDistribution = 2,
  kUnknownSequence = 3,
  kInvalid = 4,
  kDeviceError = 5,
  kAborted = 6,   // the round was aborted before its commit: nothing changed
  kNotReady = 7,  // the sequence is pending: nothing changed
};

// Why a sequence ended (CONTRACT §7). Values are on the wire and in specd.h.
enum class FinishReason : uint32_t { kNone = 0, kStop = 1, kLength = 2, kAbort = 3, kError = 4 };

// The value of bad_row if no row is to blame.
inline constexpr uint32_t kNoRow = ~uint32_t{0};

// The value of a missing sum of logprobs.
inline constexpr double kNoLogprob = std::numeric_limits<double>::quiet_NaN();

struct SequenceResult {
  SequenceHandle sequence = 0;
  RoundStatus status = RoundStatus::kOk;
  Refusal refusal = Refusal::kNone;           // of kInvalid and kBadDistribution
  VerifyMethod method = VerifyMethod::kAuto;  // of this round; kAuto: nothing was verified
  FinishReason finish_reason = FinishReason::kNone;
  uint32_t num_drafts = 0;    // the draft tokens that were judged
  uint32_t num_accepted = 0;  // the accepted draft tokens among the kept tokens
  uint32_t num_kept = 0;
  uint32_t total_kept = 0;
  TokenId stop_token = kNoToken;
  // The row that is no distribution, an index into the tensor that `refusal` names. Its place in
  // the draft is num_kept.
  uint32_t bad_row = kNoRow;
  const TokenId* tokens = nullptr;  // num_kept ids
  const int32_t* path = nullptr;    // num_accepted nodes, from the root on
  uint32_t scores_per_token = 0;    // NumScores of the sequence's request
  const TokenScore* scores = nullptr;
  // The sum over all tokens kept since the sequence was opened.
  double cumulative_logprob = kNoLogprob;
};

// Whether the round changed its sequence, which may have kept tokens or ended.
constexpr bool IsCommitted(const SequenceResult& result) {
  return result.status == RoundStatus::kOk || result.status == RoundStatus::kBadDistribution;
}

}  // namespace specd
