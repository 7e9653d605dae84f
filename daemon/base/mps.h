// MPS, NVIDIA's multi-process service: whether an engine and the daemon share their GPU through one
// server, or take turns on it.
//
// Two processes on a GPU without MPS are time-sliced: their kernels never run at the same time, and
// each may wait for the other's slice. Nothing about a result depends on it, only latency. Any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/gpu_result.h"

namespace specd {

// Where this process looks for its server: CUDA_MPS_PIPE_DIRECTORY, or NVIDIA's default.
std::string MpsPipeDirectory();

// What a process says of itself: "none" where one of its devices is not shared through MPS, the
// identity of its server's pipe where all are, "" where there are none or it cannot be known.
std::string DescribeMps(const std::vector<GpuDevice>& devices, const std::string& pipe_directory);

struct Sharing {
  uint32_t mode = 0;      // SPECD_SHARING_...
  const char* text = "";  // with the remedy, where there is one
};

// From what both say of themselves.
Sharing JudgeSharing(std::string_view engine_mps, std::string_view daemon_mps);

// What a daemon whose rounds run on a GPU writes down when an engine attaches: it knows nothing of
// the engine's server, so with one of its own it can only say which the engine must have too.
Sharing ForeseeSharing(std::string_view daemon_mps);

}  // namespace specd
