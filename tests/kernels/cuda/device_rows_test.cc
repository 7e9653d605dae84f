// Rounds over rows that lie on the device already: read in place, with any stride and
// alignment, and beside rows of the host. The answers are those of the CPU over the same rows in
// host memory.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/kernels/cuda/run_backend.h"
#include "tests/support/grid_size.h"
#include "tests/support/imported_memory.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("target, draft and mask on the device or on the host, in any mixture") {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const RoundCase::Options options{.vocab_size = 2 * kTileSize + 301,
                                       .batch = GridSize({.full = 30, .sanitized = 10}),
                                       .max_draft = 3,
                                       .dtype = dtype,
                                       .seed = 70 + static_cast<uint64_t>(dtype)};
      const BackendLimits limits{options.vocab_size, options.batch, options.max_draft};
      RoundCase round(options);
      CpuBackend cpu(CpuTarget::kBaseline);
      REQUIRE(cpu.Prepare(limits).ok());
      const std::vector<std::string> expected = RunAll(cpu, round);
      for (int mixture = 0; mixture < 8; ++mixture) {
        CAPTURE(static_cast<int>(dtype));
        CAPTURE(mixture);
        FakeGpu gpu;
        ImportedMemory imported(&gpu);
        // In pieces of one sequence and in one.
        CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), mixture % 3 == 0 ? 1 : kPlenty);
        REQUIRE(backend.Prepare(limits).ok());
        RoundBatch batch = round.All();
        if (mixture & 1) batch.target = imported.Tensor(batch.target, 3);
        if (mixture & 2) batch.draft = imported.Tensor(batch.draft, 5);
        if (mixture & 4) batch.mask = imported.Mask(batch.mask, options.vocab_size);
        const std::vector<std::string> answers = RunAll(backend, round, batch);
        for (size_t i = 0; i < answers.size(); ++i) {
          CAPTURE(i);
          REQUIRE(answers[i] == expected[i]);
        }
      }
    }
  }

  TEST_CASE("transforms of rows on the device") {
    const RowMatrix rows = TransformRows(DType::kFloat32, 300);
    FakeGpu gpu;
    ImportedMemory imported(&gpu);
    CpuBackend cpu(CpuTarget::kBaseline);
    CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
    for (Backend* backend : {static_cast<Backend*>(&cpu), static_cast<Backend*>(&cuda)}) {
      REQUIRE(backend->Prepare({300, 2, 0}).ok());
    }
    CHECK(OutputsOf(cuda, imported.Tensor(rows.view(), 2), MixedTransforms(9)) ==
          OutputsOf(cpu, rows.view(), MixedTransforms(9)));
  }

  TEST_CASE("a backend says which device's memory rounds may be given") {
    FakeGpu gpu;
    gpu.devices = {{"Fake", "GPU-1234"}, {"Fake", "GPU-5678"}};
    const auto cuda = MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu));
    REQUIRE(cuda.ok());
    CHECK((*cuda)->device_uuid() == "GPU-1234");
    CHECK(CpuBackend(CpuTarget::kBaseline).device_uuid().empty());
  }
}

}  // namespace
}  // namespace specd
