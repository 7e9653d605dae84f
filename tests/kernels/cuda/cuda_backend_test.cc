// CudaBackend over a fake driver: uploads, pieces and graphs. Where the driver fails is
// cuda_failures_test.cc, and what only a GPU can show cuda_device_test.cc.
#include "kernels/cuda/cuda_backend.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/kernels/cuda/mixed_rounds.h"
#include "tests/support/grid_size.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("rounds on the emulated device equal rounds on the CPU, whole and in pieces") {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      if (kIsSanitized && dtype == DType::kFloat32) continue;
      RoundCase::Options options = kMixed;
      options.dtype = dtype;
      if (dtype == DType::kFloat16) options.draft_dtype = DType::kFloat32;
      options.seed += static_cast<uint64_t>(dtype);
      const std::vector<std::string> expected = ExpectedFor(options);
      // Room for one row pair at most: one sequence each time. Or five sequences, or all.
      for (const int64_t upload_bytes : {int64_t{1}, int64_t{5 * 7 * 2500 * 4}, kPlenty}) {
        FakeGpu gpu;
        CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), upload_bytes);
        REQUIRE(backend.Prepare(kLimits).ok());
        RoundCase round(options);
        CheckEqual(RunAll(backend, round), expected);
        CHECK(gpu.num_launches == (upload_bytes == 1 ? 24 : upload_bytes == kPlenty ? 1 : 5));
        CheckEqual(RunAll(backend, round), expected);
      }
    }
  }

  // A sequence has the edits that it needs, up to every id of the vocabulary. If the arena cannot
  // hold all tasks at once, the rest comes in the next piece. If it can never hold one task, only
  // that task fails.
  TEST_CASE("edits that fill the upload memory cut the round, and too many are an outcome") {
    constexpr int32_t kVocabSize = 60000;
    std::vector<TokenEdit> edits(kVocabSize);
    for (int32_t id = 0; id < kVocabSize; ++id) edits[id] = {.id = id, .flags = kEditDisallowed};
    edits[40001].flags = 0;
    RowMatrix rows({.vocab_size = kVocabSize, .num_rows = 1});
    rows.Set(0, std::vector<double>(kVocabSize, 1.0));
    const uint32_t row = 0;
    std::vector<Task> tasks(6);
    for (Task& task : tasks) {
      task.draft.target_rows = &row;
      task.edits.edits = edits.data();
      task.edits.num_edits = kVocabSize;
    }
    std::vector<TaskOutcome> outcomes(6);
    std::vector<TokenId> tokens(6, -7);
    RoundBatch batch;
    batch.target = rows.view();
    batch.tasks = tasks.data();
    batch.num_tasks = 6;
    batch.outcomes = outcomes.data();
    batch.tokens = tokens.data();
    batch.tokens_stride = 1;

    FakeGpu gpu;
    CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
    REQUIRE(backend.Prepare({kVocabSize, 6, 0}).ok());
    REQUIRE(backend.Run(batch).ok());
    CHECK(tokens == std::vector<TokenId>(6, 40001));
    CHECK(gpu.num_launches > 1);
    CHECK(gpu.num_launches < 6);

    // A list of 40 vocabularies stands for the lists of 40 places.
    std::vector<TokenEdit> many(40 * kVocabSize, edits[0]);
    tasks[3].edits.edits = many.data();
    tasks[3].edits.num_edits = static_cast<int32_t>(many.size());
    tokens.assign(6, -7);
    REQUIRE(backend.Run(batch).ok());
    CHECK(outcomes[3].status == OutcomeStatus::kNoRoom);
    CHECK(outcomes[3].num_tokens == 0);
    CHECK(tokens == std::vector<TokenId>{40001, 40001, 40001, -7, 40001, 40001});
  }

  TEST_CASE("transforms on the emulated device equal those on the CPU, whole and in pieces") {
    constexpr int32_t kVocabSize = kTileSize + 900;
    const RowMatrix rows = TransformRows(DType::kBFloat16, kVocabSize);
    CpuBackend cpu(CpuTarget::kBaseline);
    REQUIRE(cpu.Prepare({kVocabSize, 1, 0}).ok());
    const auto expected = OutputsOf(cpu, rows.view(), MixedTransforms(11));
    for (const int32_t max_batch : {1, 8, 64}) {
      FakeGpu gpu;
      CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
      REQUIRE(backend.Prepare({kVocabSize, max_batch, 0}).ok());
      CHECK(OutputsOf(backend, rows.view(), MixedTransforms(11)) == expected);
      CHECK(gpu.num_launches == (max_batch == 1 ? 11 : max_batch == 8 ? 3 : 1));
    }
  }

  TEST_CASE(
      "the host waits for a word of the round's, and asks the driver for no synchronization") {
    for (const bool runs_at_once : {false, true}) {
      FakeGpu gpu;
      gpu.runs_at_once = runs_at_once;
      CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
      REQUIRE(backend.Prepare(kLimits).ok());
      gpu.failing_call = "Synchronize";
      RoundCase round(kMixed);
      for (int i = 0; i < 3; ++i) CheckEqual(RunAll(backend, round), ExpectedFor(kMixed));
    }
  }

  // A graph has to serve every round of its bucket, whichever round it was captured with.
  TEST_CASE("the graphs of one Prepare run rounds of every size, each with its own tasks") {
    for (const bool runs_at_once : {false, true}) {
      FakeGpu gpu;
      gpu.runs_at_once = runs_at_once;
      CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
      REQUIRE(backend.Prepare(kLimits).ok());
      CHECK(gpu.graphs.size() == 6 * 6);  // of 1, 2, 4, 8, 16 and 24
      CHECK(gpu.num_launches == 0);
      // From here on nothing is allocated and nothing is captured.
      const size_t num_blocks = gpu.allocations.size() + gpu.pinned.size();
      gpu.failing_call = "BeginCapture";
      int num_rounds = 0;
      for (const int32_t batch : {24, 1, 2, 3, 4, 5, 8, 9, 16, 17, 24, 1}) {
        CAPTURE(batch);
        RoundCase::Options options = kMixed;
        options.batch = batch;
        options.seed = 900 + static_cast<uint64_t>(++num_rounds);
        RoundCase round(options);
        CheckEqual(RunAll(backend, round), ExpectedFor(options));
        CHECK(gpu.num_graph_launches == num_rounds);
        CHECK(gpu.num_launches == num_rounds);
      }
      CHECK(gpu.allocations.size() + gpu.pinned.size() == num_blocks);
      CHECK(gpu.graphs.size() == 6 * 6);
    }
  }

  TEST_CASE("graphs of an earlier Prepare are gone with its memory") {
    FakeGpu gpu;
    CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
    REQUIRE(backend.Prepare({.vocab_size = 100, .max_batch = 3, .max_draft = 0}).ok());
    CHECK(gpu.graphs.size() == 6 * 3);  // of 1, 2 and 3
    REQUIRE(backend.Prepare(kLimits).ok());
    CHECK(gpu.graphs.size() == 6 * 6);
    RoundCase round(kMixed);
    CheckEqual(RunAll(backend, round), ExpectedFor(kMixed));
  }

  TEST_CASE("rounds run on the caller's stream, and on its device") {
    FakeGpu gpu;
    gpu.devices.resize(3);
    gpu.stream_device = 2;
    int stream = 0;
    const auto backend =
        MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu), {.cuda_stream = &stream});
    REQUIRE(backend.ok());
    CHECK(gpu.stream == &stream);
    CHECK(gpu.used_device == 2);

    gpu = FakeGpu();
    REQUIRE(MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu)).ok());
    CHECK(gpu.stream == nullptr);
    CHECK(gpu.used_device == 0);

    gpu.failing_call = "UseStream";
    const auto refused =
        MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu), {.cuda_stream = &stream});
    CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(refused.status().message()).find("cuda_stream") != std::string::npos);
  }
}

}  // namespace
}  // namespace specd
