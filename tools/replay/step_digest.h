// StepDigest is what diff remembers of one sequence's part of one round: a hash for each thing that
// may differ.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

struct StepDigest {
  uint64_t round = 0;
  uint64_t parameters = 0;  // method, scales, filters, penalties, edits, scores
  uint64_t coins = 0;       // seed and injected coins
  uint64_t draft = 0;       // ids and kinds
  uint64_t rows = 0;        // hashes of the rows, or p and q where they were not recorded
  uint64_t grammar = 0;     // states, masks, forced tokens
  uint64_t outcome = 0;     // status and confirmed tokens

  bool operator==(const StepDigest& other) const;
};

StepDigest DigestOf(const TraceRound& round, const TraceTask& task);

// What differs between two steps, in the order in which one thing causes another, as sentences with
// values. Empty: equal.
struct StepDifference {
  std::string cause;  // "parameters", "coins", "draft", "rows", "grammar", "decision"
  std::string text;
};
std::vector<StepDifference> CompareSteps(const TraceRound& a_round, const TraceTask& a,
                                         const TraceRound& b_round, const TraceTask& b);

}  // namespace specd::replay
