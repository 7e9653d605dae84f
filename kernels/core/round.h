// What one sequence brings to a round, and what it takes away: plain data that ipc decodes,
// speculative packs and a backend reads.
//
// Nothing here owns memory. Pointers inside a DraftChain stay valid for the duration of the round.
#pragma once

#include <cstdint>

#include "kernels/core/types.h"

namespace specd {

// How a draft token was chosen (CONTRACT §2). A token that was drawn from a distribution must bring
// it (a draft row); calling it kOneHot instead is always lossless but accepts less.
enum class DraftKind : uint8_t { kOneHot = 0, kSampled = 1 };

// The verification methods of CONTRACT §5 that chains need so far. Values are on the wire.
enum class VerifyMethod : uint32_t { kAuto = 0, kGreedy = 1, kExactMatch = 2, kToken = 3 };

// A chain of draft tokens with the rows that judge it. target_rows has num_drafts + 1 entries;
// draft_rows is read only where kinds[i] == kSampled.
struct DraftChain {
  int32_t num_drafts = 0;
  const TokenId* tokens = nullptr;
  const DraftKind* kinds = nullptr;
  const uint32_t* target_rows = nullptr;
  const uint32_t* draft_rows = nullptr;
};

// Why a sequence's part of a round ended as it did (CONTRACT §6).
enum class OutcomeStatus : uint32_t {
  kOk = 0,
  kBadTargetRow = 1,  // NaN, or no finite maximum, in a target row the decision needed
  kBadDraftRow = 2,   // the same in a draft row the decision needed
};

// The kernels' answer for one sequence: num_accepted drafts, then (status kOk) one final token.
// With a bad row the accepted tokens before it stand and there is no final token.
struct ChainOutcome {
  OutcomeStatus status = OutcomeStatus::kOk;
  int32_t num_accepted = 0;
  int32_t num_tokens = 0;        // num_accepted, plus 1 when status is kOk
  uint32_t empty_residuals = 0;  // residual rounded to nothing: sampled p instead
  uint32_t invalid_drafts = 0;   // ids outside the vocabulary that were verified (and rejected)
};

// Why a sequence ended (CONTRACT §7). Values are on the wire and in specd.h.
enum class FinishReason : uint32_t { kNone = 0, kStop = 1, kLength = 2, kAbort = 3, kError = 4 };

// One sequence's work. The coins are keyed by (seed; position, round_base, node, purpose) and never
// by the place in the batch (CONTRACT §4).
struct ChainTask {
  DraftChain chain;
  VerifyMethod method = VerifyMethod::kGreedy;  // never kAuto here
  float target_scale = 0;  // float(log2(e) / temperature), computed once in double
  float draft_scale = 0;   // the same for the temperature the drafter declares it used
  uint64_t seed = 0;
  uint32_t first_position = 0;  // absolute output position of the first token this round confirms
  uint32_t round_base = 0;      // kept output tokens when the round starts
};

// A round over num_tasks sequences. outcomes[i] and tokens[i * tokens_stride ...] belong to
// tasks[i]; tokens_stride >= max_draft + 1.
struct RoundBatch {
  TensorView target;
  TensorView draft;  // num_rows == 0 when no draft tensor is bound
  const ChainTask* tasks = nullptr;
  int32_t num_tasks = 0;
  ChainOutcome* outcomes = nullptr;
  TokenId* tokens = nullptr;
  int32_t tokens_stride = 0;
};

}  // namespace specd
