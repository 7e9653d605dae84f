// specd-gpu-daemon runs RunDaemonProgram on the first device of this machine.
#include <memory>

#include "tests/gpu/daemon/daemon_program.h"
#include "tests/support/cuda_engine_gpu.h"

namespace {

// The context lives as long as the process.
specd::EngineGpu* OpenFirstDevice(specd::GpuResult* error) {
  specd::GpuDevice device;
  static const std::unique_ptr<specd::EngineGpu> gpu = specd::OpenCudaEngineGpu(&device, error);
  return gpu.get();
}

}  // namespace

int main(int argc, char** argv) {
  // Rows are as wide as today's vocabularies. With this few sequences the time is the daemon's.
  return specd::RunDaemonProgram(
      argc, argv,
      {.open_gpu = OpenFirstDevice, .engine = {.vocab_size = 128'256, .num_sequences = 16}});
}
