// CheckRound compares a backend's answers with the oracle, token by token, for the suites, and
// DifferenceOf compares an answer with an expected one, to the bit.
//
// If a coin lies within 1e-6 of a border, the tokens on both sides of the border are right.
// NeededRows finds the rows of the floor. Stateless.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/read_floor.h"
#include "tools/bench/round_set.h"

namespace specd::bench {

// Checks the sequences of a round, from the first on. It stops after the last one, or after half a
// second of std::exp and sorting. Returns the number of checked tokens, or an error that names
// the sequence, the place and both tokens.
absl::StatusOr<int64_t> CheckRound(const RoundSet& set, int32_t round, const RoundAnswer& answer);

// Empty if there is no difference. Tokens after a sequence's last token do not count.
std::string DifferenceOf(const RoundSet& set, int32_t round, const RoundAnswer& answer,
                         const RoundAnswer& expected);

// The memory of the rows that the decisions of a round need, each row once: those that a record
// names, or that the method's rule looks at. REQUIRES: a tree's answer has its decisions.
std::vector<MemorySpan> NeededRows(const RoundSet& set, int32_t round, const RoundAnswer& answer);

// The target rows and draft rows that each sequence brings.
int32_t NumRowsGiven(const RoundSet& set);

}  // namespace specd::bench
