// CudaBackend over a fake driver that fails. The tests look at errors that name the call, rounds
// after them, memory that is given back, and backends that cannot be made.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/kernels/cuda/mixed_rounds.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("every driver failure becomes a status that names the call, and nothing leaks") {
    enum class Where { kMemory, kGraphs, kRound };
    struct Case {
      const char* call;
      int after;
      Where where;
    };
    const std::vector<std::string> expected = ExpectedFor(kMixed);
    for (const Case& c :
         {Case{"Allocate", 0, Where::kMemory}, Case{"Allocate", 1, Where::kMemory},
          Case{"Allocate", 3, Where::kMemory}, Case{"AllocatePinned", 0, Where::kMemory},
          Case{"AllocatePinned", 1, Where::kMemory}, Case{"BeginCapture", 0, Where::kGraphs},
          Case{"LaunchFetch", 0, Where::kGraphs}, Case{"LaunchRound", 0, Where::kGraphs},
          Case{"LaunchResolve", 1, Where::kGraphs}, Case{"LaunchRound", 5, Where::kGraphs},
          Case{"EndCapture", 0, Where::kGraphs}, Case{"EndCapture", 5, Where::kGraphs},
          Case{"LaunchEndStaged", 0, Where::kGraphs}, Case{"ToDevice", 0, Where::kMemory},
          Case{"ToDevice", 1, Where::kRound}, Case{"ToDevice", 30, Where::kRound},
          Case{"LaunchGraph", 0, Where::kRound}, Case{"Check", 0, Where::kRound}}) {
      CAPTURE(std::string(c.call));
      CAPTURE(c.after);
      FakeGpu gpu;
      gpu.failing_call = c.call;
      gpu.failing_after = c.after;
      {
        CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
        absl::Status status = backend.Prepare(kLimits);
        REQUIRE(status.ok() == (c.where == Where::kRound));
        RoundCase round(kMixed);
        if (c.where == Where::kRound) status = backend.Run(round.All());
        CHECK(status.code() == (c.where == Where::kMemory ? absl::StatusCode::kResourceExhausted
                                                          : absl::StatusCode::kInternal));
        if (c.where == Where::kGraphs) CHECK(gpu.graphs.empty());
        const std::string text(status.message());
        CHECK(text.find(std::string("fake failure of ") + c.call) != std::string::npos);
        gpu.failing_call = "";
        // A round that failed spoils none that follow.
        if (c.where == Where::kRound) CheckEqual(RunAll(backend, round), expected);
        // A second Prepare starts afresh.
        CHECK(backend.Prepare(kLimits).ok());
        CheckEqual(RunAll(backend, round), expected);
      }
      CHECK(gpu.allocations.empty());
      CHECK(gpu.pinned.empty());
      CHECK(gpu.graphs.empty());
    }
  }

  TEST_CASE("a round that ran although its launch failed is not taken for the one behind it") {
    for (const bool runs_at_once : {false, true}) {
      FakeGpu gpu;
      gpu.runs_at_once = runs_at_once;
      CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
      REQUIRE(backend.Prepare(kLimits).ok());
      RoundCase round(kMixed);
      CheckEqual(RunAll(backend, round), ExpectedFor(kMixed));
      for (int i = 0; i < 2; ++i) {
        gpu.fails_late = true;
        CHECK(backend.Run(round.All()).code() == absl::StatusCode::kInternal);
      }
      RoundCase::Options another = kMixed;
      another.seed += 1;
      RoundCase next(another);
      CheckEqual(RunAll(backend, next), ExpectedFor(another));
    }
  }

  TEST_CASE("a device that fails in a round is an error, and never waited for") {
    for (const bool runs_at_once : {false, true}) {
      FakeGpu gpu;
      gpu.runs_at_once = runs_at_once;
      CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
      REQUIRE(backend.Prepare(kLimits).ok());
      // The work that follows on the CUDA stream never runs, so the round never ends.
      gpu.before_round = [&](const RoundBatch&) { gpu.fault = GpuResult::Error("a dead device"); };
      RoundCase round(kMixed);
      const absl::Status status = backend.Run(round.All());
      CHECK(status.code() == absl::StatusCode::kInternal);
      CHECK(status.message().find("a dead device") != std::string::npos);
    }
  }

  TEST_CASE("memory that cannot be given back stops nothing") {
    for (const char* call : {"Free", "FreePinned", "DestroyGraph"}) {
      FakeGpu gpu;
      {
        CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
        REQUIRE(backend.Prepare(kLimits).ok());
        gpu.failing_call = call;
        CHECK(backend.Prepare(kLimits).ok());
        RoundCase round(kMixed);
        CheckEqual(RunAll(backend, round), ExpectedFor(kMixed));
        gpu.failing_after = 0;
      }
      CHECK(gpu.allocations.empty());
      CHECK(gpu.pinned.empty());
      CHECK(gpu.graphs.empty());
    }
  }

  TEST_CASE("a failure of the driver in a transform becomes a status that names the call") {
    RowMatrix rows({.vocab_size = 4, .num_rows = 1});
    rows.Set(0, {1, 2, 3, 4});
    float out[4];
    RowTransform transform;
    transform.scale = 1;
    transform.out = out;
    OutcomeStatus status = OutcomeStatus::kOk;
    for (const char* call : {"ToDevice", "LaunchTransforms", "ToHost", "Synchronize"}) {
      FakeGpu gpu;
      CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
      REQUIRE(backend.Prepare({4, 1, 0}).ok());
      gpu.failing_call = call;
      const absl::Status result = backend.Transform({rows.view(), &transform, 1, &status});
      CHECK(result.code() == absl::StatusCode::kInternal);
      CHECK(std::string(result.message()).find(call) != std::string::npos);
    }
  }

  TEST_CASE("no device, or no driver, is unimplemented and says what to do") {
    FakeGpu gpu;
    gpu.devices.clear();
    auto backend = MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu));
    CHECK(backend.status().code() == absl::StatusCode::kUnimplemented);
    CHECK(std::string(backend.status().message()).find("no device is visible") !=
          std::string::npos);
    gpu.failing_call = "ListDevices";
    backend = MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu));
    CHECK(backend.status().code() == absl::StatusCode::kUnimplemented);
    CHECK(std::string(backend.status().message()).find("fake failure") != std::string::npos);
    gpu = FakeGpu();
    backend = MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu));
    REQUIRE(backend.ok());
    CHECK((*backend)->name() == "cuda");
  }

  TEST_CASE("the real \"cuda\" backend is there, or says why not") {
    const auto backend = MakeBackend("cuda");
    const absl::StatusCode code = backend.status().code();
    CHECK((code == absl::StatusCode::kOk || code == absl::StatusCode::kUnimplemented));
    if (!backend.ok()) {
      CHECK(std::string(backend.status().message()).find("use \"cpu\"") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace specd
