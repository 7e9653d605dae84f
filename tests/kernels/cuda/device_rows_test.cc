// Rounds over rows that lie on the device already: read in place, with any stride and
// alignment, and beside rows of the host. The answers are those of the CPU over the same rows in
// host memory.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/grid_size.h"
#include "tests/support/imported_memory.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

std::vector<std::string> RunBatch(Backend& backend, RoundCase& round, const RoundBatch& batch) {
  const absl::Status status = backend.Run(batch);
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  std::vector<std::string> answers;
  for (int32_t i = 0; i < batch.num_tasks; ++i) answers.push_back(round.answer(i));
  return answers;
}

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
      const std::vector<std::string> expected = RunBatch(cpu, round, round.All());
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
        const std::vector<std::string> answers = RunBatch(backend, round, batch);
        for (size_t i = 0; i < answers.size(); ++i) {
          CAPTURE(i);
          REQUIRE(answers[i] == expected[i]);
        }
      }
    }
  }

  TEST_CASE("rows on the device further apart than 32 bits count") {
    constexpr int64_t kStride = (int64_t{1} << 30) + 17;  // in floats: past 2^32 bytes
    constexpr size_t kBytes = (kStride + 8) * sizeof(float);
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    auto* const elements = static_cast<float*>(memory);
    elements[3] = 2;            // the greatest of row 0
    elements[kStride + 5] = 2;  // and of row 1
    FakeGpu gpu;
    gpu.is_imported = [&](const void* address) {
      return address >= memory && address < static_cast<char*>(memory) + kBytes;
    };
    CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
    REQUIRE(backend.Prepare({8, 1, 1}).ok());
    const TokenId draft = 5;
    const uint32_t rows[] = {1, 0};
    Task task;
    task.draft.num_nodes = 1;
    task.draft.tokens = &draft;
    task.draft.target_rows = rows;
    TaskOutcome outcome;
    TokenId tokens[2];
    RoundBatch batch;
    batch.target.data = memory;
    batch.target.num_rows = 2;
    batch.target.row_stride = kStride;
    batch.target.vocab_size = 8;
    batch.target.space = MemorySpace::kDevice;
    batch.tasks = &task;
    batch.num_tasks = 1;
    batch.outcomes = &outcome;
    batch.tokens = tokens;
    batch.tokens_stride = 2;
    REQUIRE(backend.Run(batch).ok());
    CHECK(outcome.num_tokens == 2);
    CHECK(tokens[0] == 5);
    CHECK(tokens[1] == 3);
    munmap(memory, kBytes);
  }

  TEST_CASE("transforms of rows on the device") {
    RowMatrix rows({.vocab_size = 300, .num_rows = 3, .padding = 7, .offset = 1});
    std::mt19937_64 random(72);
    for (int row = 0; row < 3; ++row) rows.Set(row, RandomLogits(random, 300));
    FakeGpu gpu;
    ImportedMemory imported(&gpu);
    CpuBackend cpu(CpuTarget::kBaseline);
    CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
    const auto run = [](Backend& backend, const TensorView& source) {
      REQUIRE(backend.Prepare({300, 2, 0}).ok());
      std::vector<std::vector<float>> out(4, std::vector<float>(300));
      std::vector<RowTransform> transforms(4);
      for (size_t i = 0; i < 4; ++i) {
        transforms[i].row = static_cast<uint32_t>(i + 2) % 3;
        transforms[i].scale = 1.5f;
        transforms[i].out = out[i].data();
      }
      std::vector<OutcomeStatus> statuses(4, OutcomeStatus::kBadToken);
      REQUIRE(backend.Transform({source, transforms.data(), 4, statuses.data()}).ok());
      for (const OutcomeStatus status : statuses) CHECK(status == OutcomeStatus::kOk);
      return out;
    };
    CHECK(run(cuda, imported.Tensor(rows.view(), 2)) == run(cpu, rows.view()));
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
