// specd-gpu-daemon over the pretended GPU: the whole program, for a machine without a device.
// libspecd's objects use the same GPU.
#include <memory>

#include "daemon/client/engine_device.h"
#include "tests/gpu/daemon/daemon_program.h"
#include "tests/gpu/daemon/fake_process_gpu.h"

namespace specd {
namespace {

// The GPU that libspecd uses, with the fault that SPECD_FAKE_FAULT names.
class FaultyGpuContext final : public BorrowedGpuContext {
 public:
  explicit FaultyGpuContext(GpuContext* gpu) : BorrowedGpuContext(gpu), gpu_(*gpu) {}

  GpuResult WaitValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override {
    if (HasFakeFault("no_wait")) return GpuResult::Ok();
    return gpu_.WaitValue(stream, word, width, value);
  }
  GpuResult LaunchHostFunction(GpuStream stream, GpuHostFunction function,
                               void* argument) override {
    if (HasFakeFault("no_host_wait")) return GpuResult::Ok();
    return gpu_.LaunchHostFunction(stream, function, argument);
  }

 private:
  GpuContext& gpu_;
};

std::unique_ptr<GpuContext> WrapFaulty(GpuContext* gpu) {
  return std::make_unique<FaultyGpuContext>(gpu);
}

}  // namespace

std::unique_ptr<GpuPlatform> MakeEnginePlatform() { return MakeFakeProcessPlatform(WrapFaulty); }

BackendRegistry& EngineBackends() { return ProcessBackends(); }

}  // namespace specd

int main(int argc, char** argv) {
  return specd::RunDaemonProgram(argc, argv,
                                 {.open_gpu = [](specd::GpuResult* error) -> specd::EngineGpu* {
                                    *error = specd::GpuResult::Ok();
                                    return &specd::FakeProcessGpu();
                                  },
                                  .engine = {.vocab_size = 64, .num_sequences = 4}});
}
