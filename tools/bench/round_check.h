// Compares what a backend answered with the reference, token by token.
//
// Coins fall where they fall: where one lies within 1e-6 of a border, both sides of it are right.
// Stateless.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/round_set.h"

namespace specd::bench {

// Checks the sequences of a round from the first on, until all are checked or `max_rows` rows have
// been computed again. Returns the number of tokens checked, or an error that names the sequence,
// the place and both tokens.
absl::StatusOr<int64_t> CheckRound(const RoundSet& set, int32_t round, const RoundAnswer& answer,
                                   int64_t max_rows);

}  // namespace specd::bench
