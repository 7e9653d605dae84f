// GrowDraft makes the draft of one sequence as a tree, for the toy engine.
//
// specd draws the children of each place from the drafter's row there, level by level. The target
// model then has a row for each place, as the one forward pass of a real engine gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "specd/specd.h"
#include "tools/toy_engine/ngram_model.h"

namespace specd::toy {

// What a specd_draft points at.
struct ProposedDraft {
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;  // empty: a chain
  std::vector<uint8_t> kinds;
  std::vector<uint32_t> target_rows;
  std::vector<uint32_t> draft_rows;
};

// Where a tree grows. Place i has row first_target + i, and row first_draft + i of the drafter.
struct TreeGround {
  specd_engine* engine;
  specd_sequence sequence;
  const NgramModel& target;
  const NgramModel& drafter;
  float* target_rows;  // of all sequences
  uint32_t first_target;
  float* draft_rows;
  uint32_t first_draft;
  size_t vocab_size;
  int32_t end_token;                 // nothing follows it
  std::span<const uint32_t> widths;  // children of a place at each depth
  size_t max_depth;
  uint32_t sampling;  // SPECD_WITHOUT_REPLACEMENT, SPECD_TOP_K_CHILDREN or SPECD_MIXED_CHILDREN
};

// Returns a code of specd.
int GrowDraft(const TreeGround& ground, const std::vector<int32_t>& context, ProposedDraft* draft);

}  // namespace specd::toy
