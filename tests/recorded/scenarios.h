// Scenarios lists the plans of the committed recordings for the recorder.
//
// The plans cover every method, parameter, dtype and kind of row, vocabularies around the tile of
// 2,048 ids, bad rows, refusals, and calls between rounds. The check uses the data files only. Pure
// functions.
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
