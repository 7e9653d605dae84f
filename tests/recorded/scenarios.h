// The plans that the committed recordings were made from: every method, parameter, dtype and kind
// of row, vocabularies around the tile of 2,048 ids, bad rows, refusals, and the calls between
// rounds.
//
// For the recorder alone; the check has the data files. Pure functions.
#pragma once

#include <vector>

#include "tests/recorded/plan.h"

namespace specd::recorded {

struct Scenario {
  EngineSpec engine;
  std::vector<LifePlan> plans;
};

std::vector<Scenario> Scenarios();

}  // namespace specd::recorded
