// DifferenceOf compares an answer to a round with the expected answer, to the bit, for the checks
// of rounds on a device.
//
// A function; safe from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/round_set.h"

namespace specd::bench {

// Empty if there is no difference. Tokens after a sequence's last token do not count.
std::string DifferenceOf(const RoundSet& set, int32_t round, const RoundAnswer& answer,
                         const RoundAnswer& expected);

}  // namespace specd::bench
