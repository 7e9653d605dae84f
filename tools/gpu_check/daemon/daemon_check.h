// The checks of specd-gpu-daemon: the daemon's own program, and engines in processes of theirs that
// attach to it over the device (docs/GPU.md, "A round on a CUDA stream").
//
// A check makes a folder and starts a daemon in it; nothing of either is left when it ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/gpu_check/attach/attach_check.h"

namespace specd {

struct DaemonSetting {
  std::string daemon = {};               // its program
  std::vector<std::string> engine = {};  // the command that MODE URI ROUNDS follow
  std::string folder = {};               // where folders of checks are made
  uint64_t num_rounds = 500;
  int patience_ms = 60'000;  // how long what has to happen may take
};

struct DaemonCheck {
  const char* name;
  const char* promise;
  AttachResult (*run)(const DaemonSetting& setting);
};

const std::vector<DaemonCheck>& DaemonChecks();

}  // namespace specd
