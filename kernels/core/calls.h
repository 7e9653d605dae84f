// What an engine asks for besides rounds, and the answers: draft tokens drawn by specd, and scores
// of given ids.
//
// One record serves every layer, as in kernels/core/sequence_round.h. Numbers come as the engine
// wrote them until the session has checked them (daemon/session/calls.h). Plain data: pointers stay
// valid for the call (inputs) or until the next one (results).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/core/round.h"
#include "kernels/core/sequence_round.h"

namespace specd {

// One row of the draft model from which children of a node are drawn. The coins, and the state that
// penalties see where they are asked for, follow from the draft prefix.
struct DraftInput {
  SequenceHandle sequence = 0;
  uint32_t row = 0;       // of the bound draft tensor
  int32_t mask_row = -1;  // of the bound mask, for sequences with draft_edits
  const TokenId* prefix = nullptr;
  int32_t num_prefix = 0;  // the depth: children stand num_prefix places after the kept tokens
  DraftSampling sampling = DraftSampling::kWithReplacement;
  int32_t num_children = 1;
  uint32_t first_node = 1;  // child j is node first_node + j of the draft
};

struct DraftResult {
  SequenceHandle sequence = 0;
  RoundStatus status = RoundStatus::kOk;
  std::string_view reason;                // what is wrong, where status is kInvalid
  std::span<const DraftSample> children;  // distinct ids
};

// Given ids in given rows of the bound target tensor; no sequence and no state.
struct ScoreInput {
  const uint32_t* rows = nullptr;
  const TokenId* ids = nullptr;
  int32_t num_ids = 0;  // at most max_output
  ScoreRequest request;
};

struct ScoreResult {
  RoundStatus status = RoundStatus::kOk;
  std::string_view reason;  // what is wrong, where status is kInvalid
  int32_t num_scored = 0;   // ids before the first bad row
  int32_t scores_per_token = 0;
  const TokenScore* scores = nullptr;
};

}  // namespace specd
