// The command "doctor": why drafts are accepted or not, with a sentence for each finding.
#pragma once

#include "absl/status/statusor.h"
#include "tools/replay/command.h"
#include "tools/replay/doctor/findings.h"

namespace specd::replay {

absl::StatusOr<int> RunDoctor(const CommandOptions& options);

// The figures that findings come from, as lines of a table; for the page of report, too.
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
