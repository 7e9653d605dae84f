#include "tests/daemon/client/graph_device.h"

#include <doctest/doctest.h>

#include <utility>

#include "daemon/client/engine_device.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/borrowed_gpu_platform.h"

namespace specd {
namespace test {
namespace {

GraphDevice* process_device = nullptr;

}  // namespace

GraphDevice::GraphDevice() {
  process_device = this;
  driver.is_imported = [this](const void* place) {
    GpuAllocation allocation;
    return gpu.Describe(reinterpret_cast<GpuAddress>(place), &allocation).ok();
  };
  REQUIRE(gpu.Allocate(uint64_t{2} << 20, &address).ok());
}

GraphDevice::~GraphDevice() {
  g.reset();
  CHECK(gpu.Free(address).ok());
}

void GraphDevice::OpenEngine(void* cuda_stream, const TraceOf& trace) {
  g = std::make_unique<Generator>("embedded:cuda", cuda_stream, trace);
  g->tensors = reinterpret_cast<Tensors*>(address);
}

void GraphDevice::BindAll() {
  specd_region region = {};
  const int code = specd_import_device(g->engine, address, sizeof(Tensors), &region);
  INFO(specd_last_error());
  REQUIRE(code == SPECD_OK);
  g->BindAll(region.id);
}

}  // namespace test

std::unique_ptr<GpuPlatform> MakeEnginePlatform() {
  return std::make_unique<BorrowedGpuPlatform>(&test::process_device->gpu);
}

BackendRegistry& EngineBackends() {
  static auto* const backends =
      new BackendRegistry({CpuBackendEntry(), CudaBackendEntry([] {
                             auto rounds =
                                 std::make_unique<FakeGpuDriver>(&test::process_device->driver);
                             test::process_device->rounds = rounds.get();
                             return rounds;
                           })});
  return *backends;
}

}  // namespace specd
