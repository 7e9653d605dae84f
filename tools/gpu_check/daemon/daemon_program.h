// The command line of specd-gpu-daemon, apart from which GPU its engines have: a real one, or in
// tests the pretended one. Called once in a process, by its main thread.
#pragma once

#include <functional>

#include "tests/support/stream_engine.h"

namespace specd {

struct DaemonProgram {
  // Of an engine's process; null where there is no device, and why in the result.
  std::function<GpuContext*(GpuResult* error)> open_gpu = {};
  StreamEngine::Options engine = {};
};

// The exit status: as RunCheckProgram, and of an engine as RunStreamEngine.
int RunDaemonProgram(int argc, char** argv, const DaemonProgram& program);

}  // namespace specd
