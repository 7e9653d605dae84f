// Plays lives side by side: step k of all of them before step k + 1 of any.
//
// The rounds of one step are one round of the engine, so lives that are played together share
// batches, and a life that is played alone has each round for itself. Answers must not differ.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/recorded/life.h"

namespace specd::recorded {

// The inputs of the lives with the answers of today. `stats`, of the engine, is left empty in every
// life but the first.
std::vector<Life> PlayTogether(const EngineSpec& engine, std::vector<Life> lives, uint32_t threads);

// Each life in an engine of its own.
std::vector<Life> PlayAlone(const EngineSpec& engine, std::vector<Life> lives);

// Where two sets of answers to the same inputs differ: life, round, sequence, field, and both
// texts. with_stats: also the stats of each life.
std::vector<std::string> Differences(const std::vector<Life>& expected,
                                     const std::vector<Life>& found, bool with_stats);

}  // namespace specd::recorded
