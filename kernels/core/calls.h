// DraftInput, ScoreInput and ForcedInput carry the calls of an engine for the session: draft tokens
// drawn by specd, scores of given ids, and ids that a constraint forces.
//
// One record serves every layer, as in kernels/core/sequence_round.h. The numbers in an input are
// the engine's own until the session has checked them (daemon/session/session_calls.h). Plain data.
// The pointers of an input stay valid for the call, and those of a result until the next call.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/core/round.h"
#include "kernels/core/sequence_round.h"

namespace specd {

// One row of the draft model, from which children of a node are drawn. The draft prefix determines
// the coins and the state that penalties see.
struct DraftInput {
  SequenceHandle sequence = 0;
  uint32_t row = 0;       // an index into the bound draft tensor
  int32_t mask_row = -1;  // an index into the bound mask, for sequences with draft_edits
  const TokenId* prefix = nullptr;
  int32_t num_prefix = 0;  // the depth: children follow num_prefix places after the kept tokens
  DraftSampling sampling = DraftSampling::kWithReplacement;
  int32_t num_children = 1;
  uint32_t first_node = 1;  // child j is node first_node + j of the draft
};

struct DraftResult {
  SequenceHandle sequence = 0;
  RoundStatus status = RoundStatus::kOk;
  std::string_view reason;                // the error, if status is kInvalid
  Refusal refusal = Refusal::kNone;       // of kBadDistribution
  std::span<const DraftSample> children;  // distinct ids
};

// Ids to score in rows of the bound target tensor. A score needs no sequence and no state.
struct ScoreInput {
  const uint32_t* rows = nullptr;
  const TokenId* ids = nullptr;
  int32_t num_ids = 0;  // at most max_output
  ScoreRequest request;
};

struct ScoreResult {
  RoundStatus status = RoundStatus::kOk;
  std::string_view reason;           // the error, if status is kInvalid
  Refusal refusal = Refusal::kNone;  // of kBadDistribution
  int32_t num_scored = 0;            // the ids before the first bad row
  int32_t scores_per_token = 0;
  const TokenScore* scores = nullptr;
};

// Asks for the ids that a sequence's constraint forces after its kept tokens and a draft prefix.
struct ForcedInput {
  SequenceHandle sequence = 0;
  const TokenId* prefix = nullptr;
  int32_t num_prefix = 0;
  int32_t num_ids_max = 0;  // 1 .. max_output
};

struct ForcedResult {
  SequenceHandle sequence = 0;
  RoundStatus status = RoundStatus::kOk;
  std::string_view reason;  // the error, if status is kInvalid
  std::span<const TokenId> ids;
};

}  // namespace specd
