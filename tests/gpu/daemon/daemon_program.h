// RunDaemonProgram is the command line of specd-gpu-daemon for any GPU of its engines: a real one,
// or a pretended one in tests. The main thread of a process calls it once.
#pragma once

#include <functional>

#include "tests/support/cuda_stream_engine.h"

namespace specd {

struct DaemonProgram {
  // Opens the GPU of an engine's process. If there is none, the result is null and *error says why.
  std::function<EngineGpu*(GpuResult* error)> open_gpu = {};
  CudaStreamEngine::Options engine = {};
};

// Returns the exit status of RunCheckProgram, or in an engine's process that of RunStreamEngine.
int RunDaemonProgram(int argc, char** argv, const DaemonProgram& program);

}  // namespace specd
