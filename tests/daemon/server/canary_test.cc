// The canary on devices that answer right, wrong, late answers, or not at all. What is right
// follows from where the test puts the greatest logits; no answer of a backend is taken as
// expected.
#include "daemon/server/canary.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/grid_size.h"
#include "tests/support/manual_clock.h"

namespace specd {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// The CPU, whose answers a test may spoil.
class SpoiledBackend final : public Backend {
 public:
  std::string_view name() const override { return "spoiled"; }
  absl::Status Prepare(const BackendLimits& limits) override { return cpu_->Prepare(limits); }
  absl::Status Run(const RoundBatch& batch) override {
    ++num_rounds;
    num_rows += batch.target.num_rows;
    absl::Status status = cpu_->Run(batch);
    if (spoil) spoil(batch);
    return fault.ok() ? status : fault;
  }
  absl::Status WriteSlotOutputs(const RoundBatch& batch) override {
    return cpu_->WriteSlotOutputs(batch);
  }
  absl::Status Transform(const TransformBatch& batch) override { return cpu_->Transform(batch); }

  std::function<void(const RoundBatch&)> spoil;
  absl::Status fault;
  int64_t num_rounds = 0;
  int64_t num_rows = 0;

 private:
  const std::unique_ptr<Backend> cpu_ = *MakeBackend("cpu");
};

struct Scene {
  explicit Scene(std::unique_ptr<Backend> other = nullptr) {
    if (other == nullptr) {
      auto owned = std::make_unique<SpoiledBackend>();
      backend = owned.get();
      other = std::move(owned);
    }
    auto made = Canary::Create(
        {.clock = &clock,
         .meters = &meters,
         .on_change = [this](const absl::Status& verdict) { changes.push_back(verdict); },
         .on_device_failure = [this](std::string_view why) { failures.emplace_back(why); }},
        std::move(other));
    REQUIRE_MESSAGE(made.ok(), made.status().ToString());
    canary = *std::move(made);
  }

  // A round, if one is due after these seconds without any other.
  void Wait(int64_t seconds, bool has_worked = false) {
    clock.AdvanceNs(seconds * kSecond);
    canary->LookWhileIdle(has_worked);
  }
  uint64_t failing() const { return meters.canary_failing.value(); }

  ManualClock clock;
  VerifyMeters meters;
  std::vector<absl::Status> changes;
  std::vector<std::string> failures;
  SpoiledBackend* backend = nullptr;
  std::unique_ptr<Canary> canary;
};

TEST_SUITE("unit") {
  TEST_CASE("the canary: a round of two rows at once, and every ten seconds of a quiet daemon") {
    Scene scene;
    scene.Wait(0);
    CHECK(scene.backend->num_rounds == 1);
    CHECK(scene.backend->num_rows == 2);
    scene.Wait(9);
    CHECK(scene.backend->num_rounds == 1);
    scene.Wait(1);
    CHECK(scene.backend->num_rounds == 2);
    // Each of the 5000 ids is the greatest once, with drafts that stand and drafts that fall.
    const int num_rounds = GridSize({.full = 2500, .sanitized = 100});
    for (int i = 2; i < num_rounds; ++i) scene.Wait(10);
    CHECK(scene.backend->num_rounds == num_rounds);
    CHECK(scene.meters.canary_failures.value() == 0);
    CHECK(scene.changes.empty());
  }

  TEST_CASE("the canary: it leaves busy engines alone, and runs after a quiet second") {
    Scene scene;
    scene.Wait(0);
    for (int i = 0; i < 100; ++i) scene.Wait(1, /*has_worked=*/true);
    CHECK(scene.backend->num_rounds == 1);
    scene.Wait(0);  // quiet from now on
    scene.clock.AdvanceNs(Canary::kQuietNs - 1);
    scene.Wait(0);
    CHECK(scene.backend->num_rounds == 1);
    scene.clock.AdvanceNs(1);
    scene.Wait(0);
    CHECK(scene.backend->num_rounds == 2);
  }

  TEST_CASE("the canary: every wrong answer is counted, and one that is right ends it") {
    const std::vector<std::function<void(const RoundBatch&)>> spoils = {
        [](const RoundBatch& batch) { batch.tokens[0] ^= 1; },
        [](const RoundBatch& batch) { batch.tokens[batch.outcomes[0].num_tokens - 1] ^= 1; },
        // A round that the device did not do: the answers of the last one are still there.
        [last = TaskOutcome{.num_accepted = 1, .num_tokens = 2},
         tokens = std::vector<TokenId>{1237, 2474}](const RoundBatch& batch) {
          batch.outcomes[0] = last;
          std::copy(tokens.begin(), tokens.end(), batch.tokens);
        },
        [](const RoundBatch& batch) {
          batch.outcomes[0] = {.status = OutcomeStatus::kBadTargetRow, .fault = RowFault::kNan};
        },
        // One token less than was decided.
        [](const RoundBatch& batch) {
          TaskOutcome& outcome = batch.outcomes[0];
          outcome.num_tokens = 1;
          outcome.num_accepted = 0;
          if (batch.tasks[0].draft.tokens[0] != batch.tokens[0]) batch.tokens[0] ^= 1;
        },
    };
    for (size_t i = 0; i < spoils.size(); ++i) {
      CAPTURE(i);
      Scene scene;
      scene.Wait(0);
      REQUIRE(scene.changes.empty());
      scene.backend->spoil = spoils[i];
      scene.Wait(10);
      CHECK(scene.failing() == 1);
      scene.Wait(10);
      CHECK(scene.failing() == 2);
      REQUIRE(scene.changes.size() == 1);
      CHECK(scene.changes[0].message().find("is right") != std::string::npos);
      scene.backend->spoil = nullptr;
      scene.Wait(10);
      CHECK(scene.failing() == 0);
      CHECK(scene.meters.canary_failures.value() == 2);
      REQUIRE(scene.changes.size() == 2);
      CHECK(scene.changes[1].ok());
      CHECK(scene.failures.empty());
    }
  }

  TEST_CASE("the canary: a device that is wrong is asked on time, though engines are busy") {
    Scene scene;
    scene.backend->spoil = [](const RoundBatch& batch) { batch.tokens[0] ^= 1; };
    scene.Wait(0);
    CHECK(scene.changes.size() == 1);  // the first answer already
    for (int i = 0; i < 10; ++i) scene.Wait(1, /*has_worked=*/true);
    CHECK(scene.failing() == 2);
    scene.backend->spoil = nullptr;
    for (int i = 0; i < 10; ++i) scene.Wait(1, /*has_worked=*/true);
    CHECK(scene.failing() == 0);
  }

  TEST_CASE("the canary: a device that fails is told once and asked no more") {
    Scene scene;
    scene.Wait(0);
    scene.backend->fault = absl::InternalError("the device is gone");
    scene.Wait(10);
    scene.Wait(10);
    CHECK(scene.failures == std::vector<std::string>{"the device is gone"});
    CHECK(scene.failing() == 1);
    CHECK(scene.changes.empty());
    CHECK(scene.backend->num_rounds == 2);
  }

  TEST_CASE("the canary: the kernels of a GPU answer it right, and their failure is seen") {
    FakeGpu gpu;
    Scene scene(std::make_unique<CudaBackend>(std::make_unique<FakeGpuDriver>(&gpu), 1 << 20));
    for (int i = 0; i < 10; ++i) scene.Wait(10);
    CHECK(gpu.num_launches == 10);
    CHECK(scene.meters.canary_failures.value() == 0);
    CHECK(scene.changes.empty());
    gpu.failing_call = "LaunchGraph";
    scene.Wait(10);
    CHECK(scene.failures.size() == 1);
  }
}

}  // namespace
}  // namespace specd
