// RunDoctor is the command "doctor": it says why drafts are accepted or not, with a sentence for
// each finding, and prints the figures that the findings come from.
//
// One thread.
#pragma once

#include "absl/status/statusor.h"
#include "tools/replay/command.h"
#include "tools/replay/doctor/findings.h"

namespace specd::replay {

absl::StatusOr<int> RunDoctor(const CommandOptions& options);

// A figure that findings come from.
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
