// DifferenceOf: where an answer to a round is not the expected one, to the bit.
//
// A function; safe from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/round_set.h"

namespace specd::bench {

// Empty where there is no difference. What is behind a sequence's last token counts for nothing.
std::string DifferenceOf(const RoundSet& set, int32_t round, const RoundAnswer& answer,
                         const RoundAnswer& expected);

}  // namespace specd::bench
