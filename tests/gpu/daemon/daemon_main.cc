// specd-gpu-daemon runs RunDaemonProgram on the first device of this machine.
#include <memory>
#include <vector>

#include "kernels/cuda/driver_platform.h"
#include "tests/gpu/daemon/daemon_program.h"

namespace {

// The context lives as long as the process.
specd::GpuContext* OpenFirstDevice(specd::GpuResult* error) {
  static const std::unique_ptr<specd::GpuPlatform> platform = specd::MakeCudaPlatform();
  static std::unique_ptr<specd::GpuContext> context;
  std::vector<specd::GpuDevice> devices;
  *error = platform->ListDevices(&devices);
  if (!error->ok()) return nullptr;
  if (devices.empty()) {
    *error = specd::GpuResult::Error("the driver shows no device", specd::kGpuNoDevice);
    return nullptr;
  }
  *error = platform->OpenContext(0, &context);
  return context.get();
}

}  // namespace

int main(int argc, char** argv) {
  // Rows are as wide as today's vocabularies. With this few sequences the time is the daemon's.
  return specd::RunDaemonProgram(
      argc, argv,
      {.open_gpu = OpenFirstDevice, .engine = {.vocab_size = 128'256, .num_sequences = 16}});
}
