// FindingsOf turns the doctor's figures into sentences, each with its numbers and its remedy.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/replay/doctor/doctor.h"

namespace specd::replay {

struct Finding {
  // A fault: the engine or the drafter gives what it does not declare. Otherwise advice.
  bool is_fault = false;
  std::string name;  // one word for programs, such as "draft_rows"
  std::string sentence;
};

struct Costs {
  double draft_ms = 0;   // of one draft token
  double target_ms = 0;  // of one forward pass; 0: not given
};

// Faults come first.
std::vector<Finding> FindingsOf(const Doctor& doctor, const Costs& costs);

}  // namespace specd::replay
