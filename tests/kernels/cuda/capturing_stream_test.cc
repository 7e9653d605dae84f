// CudaBackend on a CUDA stream of the engine that is capturing. The device only records work there,
// so a wait for the work would have no end. The backend therefore refuses each call that waits,
// before it asks the driver for anything.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/mentions.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

constexpr BackendLimits kLimits{.vocab_size = 900, .max_batch = 3, .max_draft = 2};
constexpr RoundCase::Options kCase{.vocab_size = kLimits.vocab_size,
                                   .batch = kLimits.max_batch,
                                   .max_draft = kLimits.max_draft,
                                   .seed = 77};

// A backend on the stream of an engine.
struct Rig {
  explicit Rig(void* used_stream) {
    auto made =
        MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu), {.cuda_stream = used_stream});
    REQUIRE(made.ok());
    backend = *std::move(made);
    rows.Set(0, std::vector<double>(static_cast<size_t>(kLimits.vocab_size), 1.0));
    transform.scale = 1;
    transform.out = out.data();
  }

  absl::Status Run() { return backend->Run(round.All()); }
  absl::Status Transform() {
    return backend->Transform({rows.view(), &transform, 1, &transformed});
  }
  absl::Status WriteSlotOutputs() {
    RoundBatch batch = round.All();
    batch.slot_outputs = &next_tokens;
    batch.num_slot_outputs = 1;
    return backend->WriteSlotOutputs(batch);
  }

  FakeGpu gpu;
  std::unique_ptr<Backend> backend;
  RoundCase round{kCase};
  RowMatrix rows{{.vocab_size = kLimits.vocab_size, .num_rows = 1}};
  std::vector<float> out = std::vector<float>(static_cast<size_t>(kLimits.vocab_size));
  RowTransform transform;
  OutcomeStatus transformed = OutcomeStatus::kOk;
  std::vector<TokenId> ids = std::vector<TokenId>(static_cast<size_t>(kLimits.max_batch));
  SlotOutput next_tokens{.data = ids.data()};
};

TEST_SUITE("unit") {
  TEST_CASE("what waits on a capturing stream is refused with the remedy, and spoils no capture") {
    struct Case {
      const char* what;
      std::function<absl::Status(Rig&)> call;
      bool has_staged_remedy;
      bool is_first = false;  // the first call of the backend
    };
    const std::vector<Case> cases = {
        {"a round", [](Rig& rig) { return rig.Run(); }, true},
        {"slot outputs", [](Rig& rig) { return rig.WriteSlotOutputs(); }, true},
        {"rows", [](Rig& rig) { return rig.Transform(); }, false},
        {"memory of rounds", [](Rig& rig) { return rig.backend->Prepare(kLimits); }, false},
        {"memory of rounds", [](Rig& rig) { return rig.backend->Prepare(kLimits); }, false, true}};
    for (const Case& c : cases) {
      CAPTURE(std::string(c.what));
      CAPTURE(c.is_first);
      int stream = 0;
      Rig rig(&stream);
      if (!c.is_first) {
        REQUIRE(rig.backend->Prepare(kLimits).ok());
        REQUIRE(rig.Run().ok());
      }
      const size_t num_blocks = rig.gpu.allocations.size() + rig.gpu.pinned.size();
      const size_t num_graphs = rig.gpu.graphs.size();
      rig.gpu.stream_captures = true;
      const absl::Status refused = c.call(rig);
      CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
      CHECK(Mentions(refused, "cuda_stream is capturing"));
      CHECK(Mentions(refused, c.what));
      CHECK(Mentions(refused, "end the capture first"));
      CHECK(Mentions(refused, "specd_enqueue_staged") == c.has_staged_remedy);
      CHECK(rig.gpu.caller_spoiled_by == "");
      // The memory and the graphs from before are still there, and serve once the capture has
      // ended.
      CHECK(rig.gpu.allocations.size() + rig.gpu.pinned.size() == num_blocks);
      CHECK(rig.gpu.graphs.size() == num_graphs);
      rig.gpu.stream_captures = false;
      CHECK(c.call(rig).ok());
      CHECK(rig.Run().ok());
    }
  }

  TEST_CASE("a backend that is made during a capture brings nothing to the device") {
    int stream = 0;
    FakeGpu gpu;
    gpu.stream_captures = true;
    gpu.failing_call = "UseDevice";  // which would be told of, were it asked for
    const auto made =
        MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu), {.cuda_stream = &stream});
    CHECK(made.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Mentions(made.status(), "cuda_stream is capturing"));
    CHECK(Mentions(made.status(), "kernels cannot be loaded"));
    CHECK(Mentions(made.status(), "before the capture begins, or after it has ended"));
    // That is of work on the stream, which loading is not.
    CHECK_FALSE(Mentions(made.status(), "when the graph is launched"));
  }

  TEST_CASE("a driver that cannot say whether the stream is capturing is an error of the call") {
    int stream = 0;
    Rig rig(&stream);
    REQUIRE(rig.backend->Prepare(kLimits).ok());
    const std::vector<std::function<absl::Status()>> calls = {
        [&] { return rig.Run(); }, [&] { return rig.WriteSlotOutputs(); },
        [&] { return rig.Transform(); }, [&] { return rig.backend->Prepare(kLimits); }};
    for (const auto& call : calls) {
      rig.gpu.failing_call = "IsCapturing";
      const absl::Status status = call();
      CHECK(status.code() == absl::StatusCode::kInternal);
      CHECK(Mentions(status, "fake failure of IsCapturing"));
      rig.gpu.failing_call = "";
      CHECK(rig.Run().ok());
    }
  }
}

}  // namespace
}  // namespace specd
