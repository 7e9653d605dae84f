// SequenceInput and SequenceResult carry one sequence's part of a round for the engine, the session
// and the verifier.
//
// One record serves every layer. ipc reads a SequenceInput from shared memory and checks it.
// speculative verifies it and fills a SequenceResult, and ipc writes the result back. Plain data.
// The pointers of an input stay valid for the round, and those of a result until the next round.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "kernels/core/draft.h"
#include "kernels/core/philox.h"
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

// ---- why a sequence is not verified -------------------------------------------------------------

// Why a sequence's part of a round is refused. Only that sequence is not verified. Values are
// SPECD_DETAIL_... of specd.h (ipc/segment/wire_values.cc). The reader of a record finds the errors
// that the record alone shows (ipc/segment/draft_record.h). The verifier finds the errors that
// depend on the sequence.
enum class Refusal : uint32_t {
  kNone = 0,
  // Errors of the record.
  kSequence = 1,
  kCount = 2,
  kKind = 3,
  kTargetRow = 4,
  kDraftRow = 5,
  kFlags = 6,
  kMaskRow = 7,
  kArgmax = 8,
  kDraftTokens = 10,
  kParents = 13,
  kPath = 14,
  // Errors that depend on the sequence.
  kTwice = 9,
  kHostTokens = 11,
  kNoRoom = 12,
  kTree = 15,
  kFinalMask = 16,
  kArgmaxSampled = 17,
  kArgmaxEdited = 18,
  kArgmaxScored = 19,
  kTwoMasks = 20,
  kStagedGrammar = 21,
  // These come with kBadDistribution: the sequence ended, because its constraint met a limit.
  kGrammarWays = 22,
  kGrammarMemory = 23,
  kGrammarWork = 24,
  kGrammarLibrary = 25,
};
inline constexpr uint32_t kRefusalMax = 25;

// The field, the error and the remedy: "target_rows: an index is not below the number of rows
// bound".
constexpr std::string_view RefusalText(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "none";
    case Refusal::kSequence:
      return "sequence: no handle that this session could have given out; another engine opened "
             "it, or it is no handle: give those of this engine's specd_open_sequence and "
             "specd_fork";
    case Refusal::kCount:
      return "num_nodes: more than max_draft";
    case Refusal::kKind:
      return "kinds: neither SPECD_ONE_HOT nor SPECD_SAMPLED";
    case Refusal::kTargetRow:
      return "target_rows: an index is not below the number of rows bound";
    case Refusal::kDraftRow:
      return "draft_rows: a sampled token needs its row, and an index is not below the number of "
             "rows bound";
    case Refusal::kFlags:
      return "flags: a flag that this version does not know";
    case Refusal::kMaskRow:
      return "mask_rows: an index is neither -1 nor below the number of rows bound";
    case Refusal::kArgmax:
      return "target_argmax: an id outside the vocabulary";
    case Refusal::kDraftTokens:
      return "flags: SPECD_DRAFTS_BY_SLOT, but SPECD_DRAFT_TOKENS is not bound";
    case Refusal::kParents:
      return "parents: a parent is neither -1 nor an earlier node";
    case Refusal::kPath:
      return "parents: a path is longer than max_path; raise max_path of specd_open";
    case Refusal::kTwice:
      return "sequence: the round has this sequence twice";
    case Refusal::kHostTokens:
      return "bad_words, no_repeat_ngram, thinking_budget, processors and grammars look at tokens "
             "that the "
             "host does not know; give draft tokens, or submit the round instead of staging it, "
             "and "
             "poll staged rounds before the next one";
    case Refusal::kNoRoom:
      return "drafts: the ids that the sequence's parameters ban, bias or count need more memory "
             "than rounds on the device have: lower max_draft, no_repeat_ngram or what else lists "
             "many, do without penalties, or use backend \"cpu\"; stage fewer sequences, or submit "
             "the round instead of staging it";
    case Refusal::kTree:
      return "parents: drafts that are trees are not verified in this version; give a chain";
    case Refusal::kFinalMask:
      return "mask_rows: final probabilities cannot be masked; bind logits, or give no mask_rows "
             "and "
             "no constraint";
    case Refusal::kArgmaxSampled:
      return "target_argmax: only greedy sequences may bring it; give target_rows";
    case Refusal::kArgmaxEdited:
      return "target_argmax: it cannot be masked, biased or penalised; give target_rows";
    case Refusal::kArgmaxScored:
      return "target_argmax: it has no logprobs; give target_rows";
    case Refusal::kTwoMasks:
      return "mask_rows: the sequence has a constraint of specd's own; give -1, or open it without "
             "the constraint";
    case Refusal::kStagedGrammar:
      return "sequence: it has a constraint, and a CUDA graph reads no masks of specd's own; "
             "submit "
             "its round instead of staging it";
    case Refusal::kGrammarWays:
      return "grammar: the text can go on in more than 4096 ways at once, which is the limit of "
             "the "
             "constraint's states; join alternatives that begin alike";
    case Refusal::kGrammarMemory:
      return "grammar: the states that may follow the text need more memory than a constraint may "
             "take (2^18 states, 128 MiB), or than all constraints have left; simplify the "
             "constraint, or run fewer";
    case Refusal::kGrammarWork:
      return "grammar: the next mask takes more work than one mask may (docs/GRAMMARS.md, \"Limits "
             "of a sequence\"); shorten repetitions of alternatives that begin alike";
    case Refusal::kGrammarLibrary:
      return "grammar: the library of the constraint's backend failed; use backend \"specd\"";
  }
  return "unknown";
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
  kAborted = 6,  // the round was aborted before its commit: nothing changed
};

// Why a sequence ended (CONTRACT §7). Values are on the wire and in specd.h.
enum class FinishReason : uint32_t { kNone = 0, kStop = 1, kLength = 2, kAbort = 3, kError = 4 };

// The value of a missing sum of logprobs.
inline constexpr double kNoLogprob = std::numeric_limits<double>::quiet_NaN();

struct SequenceResult {
  SequenceHandle sequence = 0;
  RoundStatus status = RoundStatus::kOk;
  Refusal refusal = Refusal::kNone;           // set if status is kInvalid
  VerifyMethod method = VerifyMethod::kAuto;  // of this round; kAuto: nothing was verified
  FinishReason finish_reason = FinishReason::kNone;
  uint32_t num_accepted = 0;  // the accepted draft tokens among the kept tokens
  uint32_t num_kept = 0;
  uint32_t total_kept = 0;
  TokenId stop_token = kNoToken;
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
