// Residuals without mass on a real device against the CPU: suite "gpu". Without a device a case
// passes and says that nothing was compared, unless SPECD_REQUIRE_GPU is set.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/cuda/device_comparison.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

// Rows p = q and a draft token that neither gives any mass: it falls, and no residual is left. The
// replacement is drawn from p (CONTRACT §5).
class EmptyResiduals {
 public:
  explicit EmptyResiduals(DType dtype)
      : rows_({.dtype = dtype, .vocab_size = kVocabSize, .num_rows = kNumTasks, .padding = 6}),
        tasks_(kNumTasks),
        chains_(kNumTasks) {
    std::mt19937_64 random(33);
    for (uint32_t i = 0; i < kNumTasks; ++i) {
      std::vector<double> values = RandomLogits(random, kVocabSize);
      const auto fallen = static_cast<TokenId>(random() % kVocabSize);
      values[static_cast<size_t>(fallen)] = -INFINITY;
      rows_.Set(i, values);
      chains_[i] = {.token = fallen, .target_rows = {i, i}, .draft_row = i};
      Task& task = tasks_[i];
      task.method = VerifyMethod::kToken;
      task.seed = random();
      task.target_scale = task.draft_scale = 1;
      task.draft = {.num_nodes = 1,
                    .tokens = &chains_[i].token,
                    .kinds = &kSampled,
                    .target_rows = chains_[i].target_rows,
                    .draft_rows = &chains_[i].draft_row};
      if (i % 4 == 1) task.target_filters.top_k = 40;
      if (i % 4 == 2) task.target_filters.top_p = kTopPOff / 16 * 15;
      if (i % 4 == 3) task.target_filters.min_p = -8;
      task.draft_filters = task.target_filters;
    }
  }

  // The token of each task. Every residual was empty.
  std::vector<TokenId> Tokens(Backend* backend) {
    REQUIRE(backend->Prepare({kVocabSize, kNumTasks, 1}).ok());
    std::vector<TaskOutcome> outcomes(kNumTasks);
    std::vector<TokenId> tokens(2 * kNumTasks, kNoToken);
    RoundBatch batch;
    batch.target = batch.draft = rows_.view();
    batch.tasks = tasks_.data();
    batch.num_tasks = kNumTasks;
    batch.outcomes = outcomes.data();
    batch.tokens = tokens.data();
    batch.tokens_stride = 2;
    const absl::Status status = backend->Run(batch);
    REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    for (const TaskOutcome& outcome : outcomes) {
      CHECK(outcome.status == OutcomeStatus::kOk);
      CHECK(outcome.empty_residuals == 1);
      CHECK(outcome.num_tokens == 1);
    }
    return tokens;
  }

 private:
  struct Chain {
    TokenId token = 0;
    uint32_t target_rows[2] = {0, 0};
    uint32_t draft_row = 0;
  };
  static constexpr int32_t kVocabSize = 2305;
  static constexpr int32_t kNumTasks = 8;
  static constexpr DraftKind kSampled = DraftKind::kSampled;

  RowMatrix rows_;
  std::vector<Task> tasks_;
  std::vector<Chain> chains_;
};

TEST_SUITE("gpu") {
  TEST_CASE("CUDA rounds: a residual that is empty") {
    const std::unique_ptr<Backend> device = DeviceOrReason();
    if (device == nullptr) return;
    const auto cpu = MakeBackend("cpu");
    REQUIRE(cpu.ok());
    for (const DType dtype : kDTypes) {
      CAPTURE(static_cast<int>(dtype));
      EmptyResiduals tasks(dtype);
      CHECK(tasks.Tokens(device.get()) == tasks.Tokens(cpu->get()));
    }
  }
}

}  // namespace
}  // namespace specd
