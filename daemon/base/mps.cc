#include "daemon/base/mps.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr char kDefaultPipeDirectory[] = P_tmpdir "/nvidia-mps";
constexpr char kNone[] = "none";

}  // namespace

std::string MpsPipeDirectory() {
  const char* named = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return named != nullptr && *named != '\0' ? named : kDefaultPipeDirectory;
}

std::string DescribeMps(const std::vector<GpuDevice>& devices, const std::string& pipe_directory) {
  if (devices.empty()) return "";
  const auto is_without = [](const GpuDevice& device) { return device.has_mps == false; };
  if (std::any_of(devices.begin(), devices.end(), is_without)) return kNone;
  // A driver that is too old does not tell whether a device has MPS.
  const auto is_with = [](const GpuDevice& device) { return device.has_mps == true; };
  if (!std::all_of(devices.begin(), devices.end(), is_with)) return "";
  // The same folder may have two names, and two containers may have two folders of one name.
  struct stat info = {};
  if (stat(pipe_directory.c_str(), &info) != 0) return "";
  return fmt::format("{:x}:{:x}", info.st_dev, info.st_ino);
}

Sharing JudgeSharing(std::string_view engine_mps, std::string_view daemon_mps) {
  if (engine_mps.empty() || daemon_mps.empty()) {
    return {
        SPECD_SHARING_UNKNOWN,
        "whether engine and daemon share their GPU through MPS cannot be known: one of them has "
        "no device, a driver too old to say, or no access to the server's pipe"};
  }
  if (engine_mps == daemon_mps && engine_mps != kNone) {
    return {SPECD_SHARING_MPS, "engine and daemon share their GPU through one MPS server"};
  }
  return {
      SPECD_SHARING_TIME_SLICED,
      "engine and daemon are two processes on one GPU without one MPS server, so they are "
      "time-sliced: their kernels never run at the same time, and a round may wait for a time "
      "slice of the engine, about 2 ms; start nvidia-cuda-mps-control before both and give both "
      "the same CUDA_MPS_PIPE_DIRECTORY, or run specd embedded"};
}

Sharing ForeseeSharing(std::string_view daemon_mps) {
  if (daemon_mps.empty()) {
    return {SPECD_SHARING_UNKNOWN,
            "whether it shares the GPU with this daemon through MPS cannot be known: this driver "
            "is too old to say, or the server's pipe is not where CUDA_MPS_PIPE_DIRECTORY says; "
            "without MPS they take turns, about 2 ms each"};
  }
  if (daemon_mps == kNone) {
    return {SPECD_SHARING_TIME_SLICED,
            "it takes turns on the GPU with this daemon, about 2 ms each, because the GPU is not "
            "shared through MPS; start nvidia-cuda-mps-control before both, or run specd embedded"};
  }
  return {SPECD_SHARING_MPS,
          "it shares the GPU with this daemon through MPS, if it has the same "
          "CUDA_MPS_PIPE_DIRECTORY; its specd_get_sharing knows"};
}

}  // namespace specd
