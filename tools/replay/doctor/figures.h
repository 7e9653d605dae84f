// FiguresOf lists the doctor's figures, each with its standard error and, where the theory gives
// one, its distance from what is expected.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/replay/doctor/doctor.h"

namespace specd::replay {

struct Figure {
  std::string name;
  double value = 0;
  double error = 0;
  uint64_t count = 0;
  std::optional<double> expected;
  std::optional<double> sigmas;
};

std::vector<Figure> FiguresOf(const Doctor& doctor);

}  // namespace specd::replay
