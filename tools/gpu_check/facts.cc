// specd-gpu-facts prints the facts of a machine for gpu_check/run, before any check. It prints a
// fact per line, and tabs separate the fields:
//
//   device <tab> ordinal <tab> name <tab> UUID     each device that the driver shows
//   none <tab> reason                              there is no driver, or no device
//
// The exit status is 0 if there is a device, and 3 if there is none.
#include <fmt/format.h>

#include <vector>

#include "kernels/cuda/driver_platform.h"

int main() {
  std::vector<specd::GpuDevice> devices;
  const specd::GpuResult result = specd::MakeCudaPlatform()->ListDevices(&devices);
  if (!result.ok()) fmt::print("none\t{}\n", result.text());
  if (result.ok() && devices.empty()) fmt::print("none\tthe driver shows no device\n");
  for (size_t i = 0; i < devices.size(); ++i) {
    fmt::print("device\t{}\t{}\t{}\n", i, devices[i].name, devices[i].uuid);
  }
  return result.ok() && !devices.empty() ? 0 : 3;
}
