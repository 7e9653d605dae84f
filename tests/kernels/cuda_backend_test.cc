// CudaBackend over a fake driver: staging, pieces, errors and memory. What only a GPU can show is
// in the suite "gpu", which asks for one.
#include "kernels/cuda/cuda_backend.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/run_chain.h"
#include "tests/support/fake_gpu_driver.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

constexpr RoundCase::Options kMixed{
    .vocab_size = 2500, .batch = 24, .max_draft = 3, .dtype = DType::kFloat16, .seed = 51};
constexpr BackendLimits kLimits{2500, 24, 3};
constexpr int64_t kPlenty = int64_t{1} << 30;

std::vector<ChainResult> RunAll(Backend& backend, RoundCase& round) {
  const RoundBatch batch = round.All();
  REQUIRE(backend.Run(batch).ok());
  std::vector<ChainResult> results;
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    results.push_back({round.outcome(i), round.tokens(i)});
  }
  return results;
}

std::vector<ChainResult> ExpectedFor(const RoundCase::Options& options) {
  RoundCase round(options);
  CpuBackend cpu(CpuTarget::kBaseline);
  REQUIRE(cpu.Prepare({options.vocab_size, options.batch, options.max_draft}).ok());
  return RunAll(cpu, round);
}

TEST_SUITE("unit") {
  TEST_CASE("rounds on the emulated device equal rounds on the CPU, whole and in pieces") {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      RoundCase::Options options = kMixed;
      options.dtype = dtype;
      const std::vector<ChainResult> expected = ExpectedFor(options);
      // Room for one row pair at most: one sequence each time. Or five sequences, or all.
      for (const int64_t staging_bytes : {int64_t{1}, int64_t{5 * 7 * 2500 * 4}, kPlenty}) {
        FakeGpu gpu;
        CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), staging_bytes);
        REQUIRE(backend.Prepare(kLimits).ok());
        RoundCase round(options);
        CHECK(RunAll(backend, round) == expected);
        CHECK(gpu.num_launches == (staging_bytes == 1 ? 24 : staging_bytes == kPlenty ? 1 : 5));
        CHECK(RunAll(backend, round) == expected);
      }
    }
  }

  TEST_CASE("rounds without drafts") {
    RoundCase::Options options = kMixed;
    options.max_draft = 0;
    FakeGpu gpu;
    CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
    REQUIRE(backend.Prepare({2500, 24, 0}).ok());
    RoundCase round(options);
    CHECK(RunAll(backend, round) == ExpectedFor(options));
  }

  TEST_CASE("every driver failure becomes a status that names the call, and nothing leaks") {
    struct Case {
      const char* call;
      int after;
      bool in_prepare;
    };
    for (const Case& c :
         {Case{"Allocate", 0, true}, Case{"Allocate", 1, true}, Case{"Allocate", 8, true},
          Case{"ToDevice", 0, false}, Case{"ToDevice", 30, false}, Case{"LaunchChains", 0, false},
          Case{"ToHost", 0, false}, Case{"ToHost", 1, false}, Case{"Synchronize", 0, false}}) {
      CAPTURE(c.call);
      FakeGpu gpu;
      gpu.failing_call = c.call;
      gpu.failing_after = c.after;
      {
        CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
        absl::Status status = backend.Prepare(kLimits);
        REQUIRE(status.ok() != c.in_prepare);
        if (c.in_prepare) {
          CHECK(status.code() == absl::StatusCode::kResourceExhausted);
        } else {
          RoundCase round(kMixed);
          status = backend.Run(round.All());
          CHECK(status.code() == absl::StatusCode::kInternal);
        }
        const std::string text(status.message());
        CHECK(text.find(std::string("fake failure of ") + c.call) != std::string::npos);
        // A second Prepare starts afresh.
        gpu.failing_call = "";
        CHECK(backend.Prepare(kLimits).ok());
        RoundCase round(kMixed);
        CHECK(RunAll(backend, round) == ExpectedFor(kMixed));
      }
      CHECK(gpu.allocations.empty());
    }
  }

  TEST_CASE("no device, or no driver, is a failed precondition that says what to do") {
    FakeGpu gpu;
    gpu.devices.clear();
    auto backend = MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu));
    CHECK(backend.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::string(backend.status().message()).find("no device is visible") !=
          std::string::npos);
    gpu.failing_call = "ListDevices";
    backend = MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu));
    CHECK(backend.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::string(backend.status().message()).find("fake failure") != std::string::npos);
    gpu = FakeGpu();
    backend = MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu));
    REQUIRE(backend.ok());
    CHECK((*backend)->name() == "cuda");
  }

  TEST_CASE("the real \"cuda\" backend is there, or says why not") {
    const auto backend = MakeBackend("cuda");
    const absl::StatusCode code = backend.status().code();
    CHECK((code == absl::StatusCode::kOk || code == absl::StatusCode::kFailedPrecondition ||
           code == absl::StatusCode::kUnimplemented));
    if (!backend.ok()) {
      CHECK(std::string(backend.status().message()).find("use \"cpu\"") != std::string::npos);
    }
  }
}

TEST_SUITE("gpu") {
  TEST_CASE("CUDA equals the CPU bit for bit") {
    auto backend = MakeBackend("cuda");
    if (!backend.ok()) {
      // Where there is no GPU it must be for want of one, and not for an error of ours.
      const absl::StatusCode code = backend.status().code();
      CHECK((code == absl::StatusCode::kFailedPrecondition ||
             code == absl::StatusCode::kUnimplemented));
      MESSAGE("not compared: ", std::string(backend.status().message()));
      return;
    }
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const int32_t vocab_size : {1, 3, 257, 2047, 2048, 2049, 32000, 151936}) {
        RoundCase::Options options = kMixed;
        options.dtype = dtype;
        options.vocab_size = vocab_size;
        options.batch = 64;
        RoundCase round(options);
        REQUIRE((*backend)->Prepare({vocab_size, 64, options.max_draft}).ok());
        CHECK(RunAll(**backend, round) == ExpectedFor(options));
      }
    }
  }
}

}  // namespace
}  // namespace specd
