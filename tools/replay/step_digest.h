// StepDigest is what diff remembers of one sequence's part of one round: a hash for each thing that
// may differ.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

// Nothing: it was not recorded.
struct StepDigest {
  uint64_t round = 0;
  // Method, scales, filters, penalties, scores, and the rules of the tensors that the task uses.
  uint64_t parameters = 0;
  std::optional<uint64_t> edits;      // of token ids, for every row
  std::optional<uint64_t> overrides;  // and for single places
  uint64_t coins = 0;                 // seed and injected coins
  uint64_t draft = 0;                 // ids, kinds and the side channel
  // Hashes of the places that were judged.
  std::optional<uint64_t> target_hashes;
  std::optional<uint64_t> draft_hashes;
  std::optional<uint64_t> shares_p;
  std::optional<uint64_t> shares_q;
  std::optional<uint64_t> argmax;
  std::optional<uint64_t> masks;
  bool has_masks = false;    // recorded or not
  bool is_by_slot = false;   // the processor made the overrides
  bool lacks_draft = false;  // the draft tokens were not recorded
  uint64_t forced = 0;       // forced tokens and min_tokens
  uint64_t outcome = 0;      // what the engine received, but for these two
  std::optional<uint64_t> path;
  std::optional<uint64_t> scores;

  // False if something differs that both have.
  bool MayEqual(const StepDigest& other) const;
  // True if there were masks, and they cannot be compared.
  bool LacksMasks(const StepDigest& other) const;
  // True if rows cannot be compared; argmax ids stand for them.
  bool LacksRows(const StepDigest& other) const;
  // True if the draft tokens of one of the two were not recorded.
  bool LacksDraft(const StepDigest& other) const;
  // True if the edits of one of the two were not recorded. Overrides that the processor made follow
  // from what was recorded.
  bool LacksEdits(const StepDigest& other) const;
};

// REQUIRES: the task has no place behind the end of its draft.
StepDigest DigestOf(const TraceRound& round, const TraceTask& task);

}  // namespace specd::replay
