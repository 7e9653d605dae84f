#include "tests/gpu/daemon/fake_process_gpu.h"

#include <cstdlib>
#include <vector>

namespace specd {
namespace {

class FakeProcessPlatform final : public GpuPlatform {
 public:
  explicit FakeProcessPlatform(WrapGpu wrap) : wrap_(wrap) {}

  GpuResult ListDevices(std::vector<GpuDevice>* devices) override {
    const char* const pipe = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
    *devices = {FakeGpuOptions().devices[0]};
    devices->front().has_mps = pipe != nullptr && *pipe != '\0';
    return GpuResult::Ok();
  }
  GpuResult FindDevice(GpuStream, size_t* device_index) override {
    *device_index = 0;
    return GpuResult::Ok();
  }
  GpuResult OpenContext(size_t, std::unique_ptr<GpuContext>* context) override {
    GpuContext* const gpu = &FakeProcessGpu();
    *context = wrap_ != nullptr ? wrap_(gpu) : std::make_unique<BorrowedGpuContext>(gpu);
    return GpuResult::Ok();
  }

 private:
  const WrapGpu wrap_;
};

}  // namespace

// Never destroyed: CUDA streams of a process that ends may still wait.
FakeGpuContext& FakeProcessGpu() {
  FakeGpuOptions options;
  options.has_stream_words = !HasFakeFault("no_stream_words");
  static auto* const gpu = new FakeGpuContext(options, 0);
  return *gpu;
}

std::unique_ptr<GpuPlatform> MakeFakeProcessPlatform(WrapGpu wrap) {
  return std::make_unique<FakeProcessPlatform>(wrap);
}

bool HasFakeFault(std::string_view name) {
  const char* const fault = std::getenv("SPECD_FAKE_FAULT");
  return fault != nullptr && name == fault;
}

}  // namespace specd
