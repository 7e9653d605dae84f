// PlayTogether and PlayAlone play lives for the check: step k of every life comes before step k + 1
// of any life.
//
// The rounds of one step are one round of the engine. Lives that are played together share batches;
// a life that is played alone has each round to itself. The answers must not differ.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/recorded/life.h"

namespace specd::recorded {

// The inputs of the lives with the answers of today. The engine's `stats` are empty in every life
// except the first.
std::vector<Life> PlayTogether(const EngineSpec& engine, std::vector<Life> lives, uint32_t threads);

// Plays each life in an engine of its own.
std::vector<Life> PlayAlone(const EngineSpec& engine, std::vector<Life> lives);

// The differences between two sets of answers to the same inputs. A difference names life, round,
// sequence, field, and both texts. with_stats compares the stats of each life too.
std::vector<std::string> Differences(const std::vector<Life>& expected,
                                     const std::vector<Life>& found, bool with_stats);

}  // namespace specd::recorded
