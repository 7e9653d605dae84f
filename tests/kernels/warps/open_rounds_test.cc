// Backends, given tasks that leave draft tokens, positions and counts to them.
#include "tests/kernels/warps/open_rounds.h"

#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/kernels/cuda/device_or_reason.h"
#include "tests/kernels/cuda/device_slots.h"

namespace specd {
namespace {

BackendLimits LimitsOf(const RoundCase::Options& options) {
  return {.vocab_size = options.vocab_size,
          .max_batch = options.batch,
          .max_draft = options.max_draft,
          .recent_room = SlotMemory::RecentRoom(options)};
}

// A CudaBackend over a fake driver, and another driver for memory of the same device.
struct EmulatedDevice {
  EmulatedDevice(const RoundCase::Options& options, int64_t upload_bytes, MemorySpace drafts_space)
      : driver(&gpu),
        slots(&driver, options, drafts_space),
        backend(std::make_unique<FakeGpuDriver>(&gpu), upload_bytes) {
    REQUIRE(backend.Prepare(LimitsOf(options)).ok());
  }

  RoundProcessor processor() { return slots.By(&backend); }

  FakeGpu gpu;
  FakeGpuDriver driver;
  DeviceSlots slots;
  CudaBackend backend;
};

TEST_SUITE("unit") {
  TEST_CASE("a graph that resolves runs only where something is left open") {
    const RoundCase::Options options{.vocab_size = 300, .batch = 6, .max_draft = 2, .seed = 9};
    EmulatedDevice device(options, int64_t{1} << 30, MemorySpace::kDevice);
    SlotRounds rounds(options);
    SlotMemory memory(options);
    rounds.Next();
    const RoundProcessor processor = device.processor();
    processor.run(rounds.round(), rounds.Known());
    CHECK(device.gpu.num_resolves == 0);
    processor.run(rounds.round(), rounds.Open(&memory));
    CHECK(device.gpu.num_resolves == 1);
    processor.run(rounds.round(), rounds.Known());
    CHECK(device.gpu.num_resolves == 1);
  }
}

TEST_SUITE("invariance") {
  TEST_CASE("rounds with something left open, on the CPU") {
    std::vector<std::unique_ptr<CpuBackend>> backends;
    std::vector<RoundProcessor> processors;
    for (const CpuTarget target : {CpuTarget::kBaseline, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
      if (!CpuTargetIsSupported(target)) continue;
      for (const int32_t threads : {1, 3}) {
        backends.push_back(std::make_unique<CpuBackend>(target));
        BackendLimits limits =
            LimitsOf({.vocab_size = 2 * kTileSize + 77, .batch = 24, .max_draft = 4});
        limits.threads = threads;
        REQUIRE(backends.back()->Prepare(limits).ok());
        const auto run = [backend = backends.back().get()](RoundCase& round, RoundBatch batch) {
          REQUIRE(backend->Run(batch).ok());
          return AnswersOf(round, batch.num_tasks);
        };
        processors.push_back({fmt::format("{} threads", threads), run});
      }
    }
    for (RoundCase::Options options : KindsOfOpenRounds()) {
      CAPTURE(options.seed);
      options.max_draft = 4;
      CheckOpenRounds(options, processors);
    }
  }

  TEST_CASE("rounds with something left open, on the emulated device") {
    for (RoundCase::Options options : KindsOfOpenRounds()) {
      CAPTURE(options.seed);
      options.batch = 12;
      std::vector<std::unique_ptr<EmulatedDevice>> devices;
      std::vector<RoundProcessor> processors;
      for (const MemorySpace drafts_space : {MemorySpace::kHost, MemorySpace::kDevice}) {
        for (const int64_t upload_bytes : {int64_t{1}, int64_t{1} << 30}) {
          devices.push_back(std::make_unique<EmulatedDevice>(options, upload_bytes, drafts_space));
          processors.push_back(devices.back()->processor());
        }
      }
      CheckOpenRounds(options, processors);
      for (const auto& device : devices) CHECK(device->gpu.num_resolves > 0);
    }
  }
}

TEST_SUITE("gpu") {
  TEST_CASE("CUDA rounds: draft tokens, positions and counts that are left to the device") {
    const std::unique_ptr<Backend> device = DeviceOrReason();
    if (device == nullptr) return;
    const std::unique_ptr<GpuDriver> driver = DriverOfDevice();
    CpuBackend cpu(BestCpuTarget());
    const RoundProcessor knowing{"CPU", [&](RoundCase& round, const RoundBatch& batch) {
                                   REQUIRE(cpu.Run(batch).ok());
                                   return AnswersOf(round, batch.num_tasks);
                                 }};
    int64_t num_compared = 0;
    for (RoundCase::Options options : KindsOfOpenRounds()) {
      for (const int32_t vocab_size : {300, Quick() ? 2049 : 50257}) {
        CAPTURE(options.seed);
        CAPTURE(vocab_size);
        options.vocab_size = vocab_size;
        options.batch = !Quick() ? 64 : options.trees ? 8 : 4;
        const BackendLimits limits = LimitsOf(options);
        REQUIRE(cpu.Prepare(limits).ok());
        REQUIRE(device->Prepare(limits).ok());
        DeviceSlots on_host(driver.get(), options, MemorySpace::kHost);
        DeviceSlots on_device(driver.get(), options, MemorySpace::kDevice);
        CheckOpenRounds(options, {on_host.By(device.get()), on_device.By(device.get())}, knowing);
        num_compared += 2 * 3 * options.batch;
      }
    }
    MESSAGE("compared ", num_compared, " answers");
  }
}

}  // namespace
}  // namespace specd
