// The command line of a program that plays checks, each in a process of its own: what it lists,
// how it plays one, and how it says what came of it. Used by specd-gpu-attach and specd-gpu-daemon.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/gpu_check/attach/attach_check.h"

namespace specd {

struct ProgramCheck {
  std::string name;
  std::string promise;
  // No result: there is no device, and why has been printed.
  std::function<std::optional<AttachResult>()> play;
};

struct CheckProgram {
  std::string name;
  std::string about;  // what its checks are about
  // Options of its own, each with a value: their lines of --help, and their names with where the
  // value goes.
  std::string options_text = {};
  std::vector<std::pair<std::string, std::string*>> options = {};
  std::vector<ProgramCheck> checks = {};
};

// The exit status: 0 passed, skipped or observed, 1 failed, 2 the arguments, 3 no device. Ends the
// process itself behind a check, because what that broke may not let a context be taken down.
int RunCheckProgram(const CheckProgram& program, const std::vector<std::string>& arguments);

}  // namespace specd
