// DaemonCheck tests the daemon's own program for specd-gpu-daemon. Engines in processes of their
// own attach to the daemon over the device (docs/GPU.md, "A round on a CUDA stream").
//
// A check makes a folder and starts a daemon in it. When the check ends, it leaves neither.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/attach/attach_check.h"

namespace specd {

struct DaemonSetting {
  std::string daemon = {};               // the daemon's program
  std::vector<std::string> engine = {};  // the command; MODE URI ROUNDS follow
  std::string folder = {};               // the folders of checks are made here
  uint64_t num_rounds = 500;
  int patience_ms = 60'000;  // the longest wait for an event that has to happen
};

struct DaemonCheck {
  const char* name;
  const char* promise;
  AttachResult (*run)(const DaemonSetting& setting);
};

const std::vector<DaemonCheck>& DaemonChecks();

}  // namespace specd
