// specd-gpu-attach over the pretended GPU: the whole program, for a machine without a device.
#include <cstdlib>

#include "tests/gpu/attach/attach_program.h"
#include "tests/gpu/driver/fake_peer_gpu.h"

int main(int argc, char** argv) {
  return specd::RunAttachProgram(
      argc, argv,
      [](specd::GpuDevice* device, specd::GpuResult* error) -> std::unique_ptr<specd::PeerGpu> {
        if (std::getenv("SPECD_FAKE_GPU_ABSENT") != nullptr) {
          *error = specd::GpuResult::Error("no device here", specd::kGpuNoDevice);
          return nullptr;
        }
        *device = specd::FakeGpuOptions().devices[0];
        return std::make_unique<specd::FakePeerGpu>();
      });
}
