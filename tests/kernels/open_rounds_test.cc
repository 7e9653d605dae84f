// Backends, given tasks that leave draft tokens, positions and counts to them.
#include "tests/kernels/open_rounds.h"

#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/fake_gpu_driver.h"

namespace specd {
namespace {

// A CudaBackend over a fake driver. What rounds have by slot is memory of the device to it, and the
// draft tokens too where their space says so.
struct EmulatedDevice {
  EmulatedDevice(const RoundCase::Options& options, int64_t staging_bytes, MemorySpace the_space)
      : drafts_space(the_space), backend(std::make_unique<FakeGpuDriver>(&gpu), staging_bytes) {
    REQUIRE(backend.Prepare({options.vocab_size, options.batch, options.max_draft}).ok());
  }

  std::vector<std::string> Run(RoundCase& round, RoundBatch batch) {
    batch.draft_tokens.space = drafts_space;
    gpu.is_imported = [&](const void* address) {
      return address == batch.slots.kept || address == batch.slots.recent ||
             (drafts_space == MemorySpace::kDevice && address == batch.draft_tokens.ids);
    };
    const absl::Status status = backend.Run(batch);
    REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    return AnswersOf(round, batch.num_tasks);
  }
  Processor processor() {
    return {fmt::format("draft tokens in space {}", static_cast<int>(drafts_space)),
            [this](RoundCase& round, const RoundBatch& batch) { return Run(round, batch); }};
  }

  const MemorySpace drafts_space;
  FakeGpu gpu;
  CudaBackend backend;
};

TEST_SUITE("unit") {
  TEST_CASE("a graph that resolves runs only where something is left open") {
    const RoundCase::Options options{.vocab_size = 300, .batch = 6, .max_draft = 2, .seed = 9};
    EmulatedDevice device(options, int64_t{1} << 30, MemorySpace::kDevice);
    SlotRounds rounds(options);
    SlotMemory memory(options);
    rounds.Next();
    device.Run(rounds.round(), rounds.Known());
    CHECK(device.gpu.num_resolves == 0);
    device.Run(rounds.round(), rounds.Open(&memory));
    CHECK(device.gpu.num_resolves == 1);
    device.Run(rounds.round(), rounds.Known());
    CHECK(device.gpu.num_resolves == 1);
  }
}

TEST_SUITE("invariance") {
  TEST_CASE("rounds with something left open, on the CPU") {
    std::vector<std::unique_ptr<CpuBackend>> backends;
    std::vector<Processor> processors;
    for (const CpuTarget target : {CpuTarget::kBaseline, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
      if (!CpuTargetIsSupported(target)) continue;
      for (const int32_t threads : {1, 3}) {
        backends.push_back(std::make_unique<CpuBackend>(target));
        REQUIRE(backends.back()->Prepare({2 * kTileSize + 77, 24, 4, threads}).ok());
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
      std::vector<Processor> processors;
      for (const MemorySpace drafts_space : {MemorySpace::kHost, MemorySpace::kDevice}) {
        for (const int64_t staging_bytes : {int64_t{1}, int64_t{1} << 30}) {
          devices.push_back(std::make_unique<EmulatedDevice>(options, staging_bytes, drafts_space));
          processors.push_back(devices.back()->processor());
        }
      }
      CheckOpenRounds(options, processors);
      for (const auto& device : devices) CHECK(device->gpu.num_resolves > 0);
    }
  }
}

}  // namespace
}  // namespace specd
