// TaskOutput holds the places of a task's results, which are its rows of RoundBatch's arrays, for
// RunTask. Plain data: it owns nothing.
#pragma once

#include "kernels/core/round.h"

namespace specd {

struct TaskOutput {
  TokenId* tokens = nullptr;
  int32_t* path = nullptr;  // the accepted nodes
  TokenScore* scores = nullptr;
  int32_t scores_stride = 0;
  DraftSample* samples = nullptr;
  const SlotOutput* slot_outputs = nullptr;
  int32_t num_slot_outputs = 0;
  SlotStates slots;
  PlaceDecision* decisions = nullptr;
  PausedTask* progress = nullptr;
  int32_t rows_max = 0;
  // For teams without pauses: where a launch before has left the places of a chain. Null: at the
  // first one.
  const PausedTask* begun = nullptr;
};

SPECD_INLINE TaskOutput OutputOf(const RoundBatch& batch, int64_t task) {
  TaskOutput output;
  if (batch.decisions != nullptr) {
    output.decisions = batch.decisions + task * batch.decisions_stride;
  }
  const int64_t first_token = task * batch.tokens_stride;
  if (batch.tokens != nullptr) output.tokens = batch.tokens + first_token;
  if (batch.path != nullptr) output.path = batch.path + first_token;
  if (batch.scores != nullptr) output.scores = batch.scores + first_token * batch.scores_stride;
  output.scores_stride = batch.scores_stride;
  if (batch.samples != nullptr) output.samples = batch.samples + task * batch.samples_stride;
  output.slot_outputs = batch.slot_outputs;
  output.num_slot_outputs = batch.num_slot_outputs;
  output.slots = batch.slots;
  output.progress = batch.progress;
  output.rows_max = batch.rows_max;
  return output;
}

}  // namespace specd
