// JudgeSharing tells an engine how its process and the daemon share their GPU.
//
// Two processes share a GPU through one server of MPS, NVIDIA's multi-process service, or they take
// turns on it. Two processes without MPS are time-sliced: their kernels never run at the same time,
// and each may wait for the other's slice. Latency depends on sharing; results do not. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/gpu_result.h"

namespace specd {

// The folder where this process looks for its server: CUDA_MPS_PIPE_DIRECTORY, or NVIDIA's default.
std::string MpsPipeDirectory();

// Describes the sharing of this process. "none": one of its devices is not shared through MPS. The
// identity of the server's pipe: all devices are. "": the process has no devices, or the sharing
// cannot be known.
std::string DescribeMps(const std::vector<GpuDevice>& devices, const std::string& pipe_directory);

struct Sharing {
  uint32_t mode = 0;      // one of SPECD_SHARING_...
  const char* text = "";  // names the remedy, if there is one
};

// Compares the descriptions of both processes.
Sharing JudgeSharing(std::string_view engine_mps, std::string_view daemon_mps);

// Says what a daemon with a GPU logs when an engine attaches. The daemon knows nothing of the
// engine's server. If the daemon has a server, the text names the server that the engine needs too.
Sharing ForeseeSharing(std::string_view daemon_mps);

}  // namespace specd
