// CheckRound compares a backend's answers with those of the reference team (ScalarTeam), to the
// bit, so that no suite times a wrong answer. DifferenceOf compares an answer with an expected one,
// and NeededRows finds the rows of the floor.
//
// The tests compare the reference team with tools/oracle. Stateless.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/round_set.h"

namespace specd::bench {

// Checks the sequences of a round, from the first on, as many as take about half a second. Returns
// the number of checked tokens, or an error that names the sequence.
absl::StatusOr<int64_t> CheckRound(const RoundSet& set, int32_t round, const RoundAnswer& answer);

// Empty if there is no difference in the sequences that are expected. Tokens after a sequence's
// last token do not count.
std::string DifferenceOf(const RoundSet& set, int32_t round, const RoundAnswer& answer,
                         const RoundAnswer& expected);

struct NeededRow {
  bool is_draft = false;  // else of the target
  uint32_t row = 0;
};
// The rows that the decisions of a round need, each row once: those that a record names, or that
// the method's rule looks at. REQUIRES: a tree's answer has its decisions.
std::vector<NeededRow> NeededRows(const RoundSet& set, int32_t round, const RoundAnswer& answer);

}  // namespace specd::bench
