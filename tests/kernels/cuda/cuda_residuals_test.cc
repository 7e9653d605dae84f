// Residuals without mass, and of more tasks than a launch has warps, on a real device against the
// CPU: suite "gpu". Without a device a case passes and says that nothing was compared, unless
// SPECD_REQUIRE_GPU is set.
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

// Every task has a draft token that p gives no mass, so that it falls. If p = q, no residual is
// left, and the replacement is drawn from p (CONTRACT §5).
class RejectedTokens {
 public:
  struct Options {
    DType dtype = DType::kFloat32;
    uint32_t num_tasks = 8;
    bool same_rows = true;  // p = q
  };

  explicit RejectedTokens(const Options& options)
      : options_(options),
        rows_({.dtype = options.dtype,
               .vocab_size = kVocabSize,
               .num_rows = 2 * int64_t{options.num_tasks},
               .padding = 6}),
        tasks_(options.num_tasks),
        chains_(options.num_tasks) {
    std::mt19937_64 random(33);
    for (uint32_t i = 0; i < options.num_tasks; ++i) {
      std::vector<double> values = RandomLogits(random, kVocabSize);
      const auto fallen = static_cast<TokenId>(random() % kVocabSize);
      values[static_cast<size_t>(fallen)] = -INFINITY;
      rows_.Set(2 * i, values);
      const uint32_t draft_row = options.same_rows ? 2 * i : 2 * i + 1;
      if (!options.same_rows) rows_.Set(draft_row, RandomLogits(random, kVocabSize));
      chains_[i] = {.token = fallen, .target_rows = {2 * i, 2 * i}, .draft_row = draft_row};
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

  // The token of each task.
  std::vector<TokenId> Tokens(Backend* backend) {
    const auto num_tasks = static_cast<int32_t>(options_.num_tasks);
    REQUIRE(backend->Prepare({kVocabSize, num_tasks, 1}).ok());
    std::vector<TaskOutcome> outcomes(options_.num_tasks);
    std::vector<TokenId> tokens(2 * options_.num_tasks, kNoToken);
    RoundBatch batch;
    batch.target = batch.draft = rows_.view();
    batch.tasks = tasks_.data();
    batch.num_tasks = num_tasks;
    batch.outcomes = outcomes.data();
    batch.tokens = tokens.data();
    batch.tokens_stride = 2;
    const absl::Status status = backend->Run(batch);
    REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    for (const TaskOutcome& outcome : outcomes) {
      CHECK(outcome.status == OutcomeStatus::kOk);
      CHECK(outcome.empty_residuals == (options_.same_rows ? 1 : 0));
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
  static constexpr DraftKind kSampled = DraftKind::kSampled;

  Options options_;
  RowMatrix rows_;
  std::vector<Task> tasks_;
  std::vector<Chain> chains_;
};

void CompareTokens(RejectedTokens::Options options) {
  const std::unique_ptr<Backend> device = DeviceOrReason();
  if (device == nullptr) return;
  const auto cpu = MakeBackend("cpu");
  REQUIRE(cpu.ok());
  for (const DType dtype : kDTypes) {
    CAPTURE(static_cast<int>(dtype));
    options.dtype = dtype;
    RejectedTokens tasks(options);
    CHECK(tasks.Tokens(device.get()) == tasks.Tokens(cpu->get()));
  }
}

TEST_SUITE("gpu") {
  TEST_CASE("CUDA rounds: a residual that is empty") { CompareTokens({}); }

  // A small device has fewer warps for the second launch than tasks.
  TEST_CASE("CUDA rounds: the draft of every task of a large batch falls") {
    CompareTokens({.num_tasks = 64, .same_rows = false});
  }
}

}  // namespace
}  // namespace specd
