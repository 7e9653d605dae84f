// RunCheckProgram is the command line of specd-gpu-attach and specd-gpu-daemon. It lists checks,
// plays each check in a process of its own, and prints the results.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu/attach/attach_check.h"

namespace specd {

struct ProgramCheck {
  std::string name;
  std::string promise;
  // Nothing if there is no device; the reason has then been printed.
  std::function<std::optional<AttachResult>()> play;
};

struct CheckProgram {
  std::string name;
  std::string about;  // the subject of its checks
  // The program's own options, each with a value: their lines of --help, and their names with the
  // places for the values.
  std::string options_text = {};
  std::vector<std::pair<std::string, std::string*>> options = {};
  std::vector<ProgramCheck> checks = {};
};

// Returns the exit status: 0 passed, skipped or observed; 1 failed; 2 wrong arguments; 3 no device.
// After a check the function ends the process itself, because a broken context may not be
// destroyed.
int RunCheckProgram(const CheckProgram& program, const std::vector<std::string>& arguments);

}  // namespace specd
