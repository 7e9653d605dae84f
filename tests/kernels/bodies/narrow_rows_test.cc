// Narrow draft rows give the answers of rows with V columns that are 0 elsewhere, bit for bit, on
// every processor and by every method.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/kernels/bodies/every_processor.h"
#include "tests/support/grid_size.h"
#include "tests/support/round_trees.h"

namespace specd {
namespace {

constexpr int32_t kBatch = GridSize({.full = 96, .sanitized = 24});
constexpr int32_t kMaxDraft = 6;

std::vector<RoundCase::Options> AllOptions() {
  std::vector<RoundCase::Options> all;
  for (int i = 0; i < 9; ++i) {
    RoundCase::Options options{.vocab_size = 300,
                               .batch = kBatch,
                               .max_draft = kMaxDraft,
                               .seed = 1200 + uint64_t(i),
                               .num_columns = 70};
    if (i < 3) options.dtype = static_cast<DType>(i);
    if (i == 1) options.scaled = true;
    if (i == 2) options.vocab_size = 3 * kTileSize + 9, options.num_columns = 2 * kTileSize + 1;
    if (i == 3) options.draft_kind = RowKind::kProbabilities;
    if (i == 4) options.draft_kind = RowKind::kFinalProbabilities;
    if (i == 5) options.vocab_size = 3, options.num_columns = 2;
    if (i == 6) options.sampled = true;
    if (i == 7) options.renormalise = true, options.draft_kind = RowKind::kProbabilities;
    if (i == 8) options.sampled = true, options.vocab_size = kTileSize + 5;
    all.push_back(options);
  }
  return all;
}

// The answers of every processor and of a device to one batch.
void CheckAll(RoundCase& round, const RoundBatch& batch, const RoundCase::Options& options,
              const std::vector<std::string>& expected) {
  CHECK(ScalarAnswers(round, batch) == expected);
  CheckEverywhere(round, batch, options, expected);
  FakeGpu gpu;
  CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), int64_t{1} << 30);
  REQUIRE(backend.Prepare({options.vocab_size, kBatch, kMaxDraft}).ok());
  const absl::StatusOr<const int32_t*> kept = backend.KeepColumns(round.columns());
  REQUIRE(kept.ok());
  CHECK(*kept != round.columns().data());
  RoundBatch of_device = batch;
  of_device.draft.columns = *kept;
  if (of_device.target.columns != nullptr) of_device.target.columns = *kept;
  CHECK(RunAll(backend, round, of_device) == expected);
}

TEST_SUITE("invariance") {
  TEST_CASE("narrow draft rows: the answers of full rows, for chains and trees") {
    for (const bool are_trees : {false, true}) {
      int num_sampled = 0;
      for (const RoundCase::Options& options : AllOptions()) {
        CAPTURE(are_trees);
        CAPTURE(options.seed);
        RoundCase narrow(options);
        RoundCase full(options);
        full.WidenDrafts();
        REQUIRE(narrow.draft_view().num_columns < options.vocab_size);
        if (are_trees) {
          const RoundTrees trees(&narrow, kBatch, options.seed);
          const RoundTrees same(&full, kBatch, options.seed);
          CheckAll(narrow, narrow.All(), options, ScalarAnswers(full));
        } else {
          CheckAll(narrow, narrow.All(), options, ScalarAnswers(full));
        }
        for (int32_t i = 0; i < kBatch; ++i) {
          if (full.outcome(i).num_accepted > 0 && full.task(i).method > VerifyMethod::kExactMatch) {
            ++num_sampled;
          }
        }
      }
      CHECK(num_sampled > 20);
    }
  }

  // SampleDraft reads draft rows as its target rows.
  TEST_CASE("narrow rows as target rows: draws, scores and every way to sample a draft") {
    for (const RoundCase::Options& options : AllOptions()) {
      if (options.draft_kind == RowKind::kFinalProbabilities) continue;  // allows no edits
      CAPTURE(options.seed);
      RoundCase narrow(options);
      RoundCase full(options);
      full.WidenDrafts();
      RoundBatch expected = full.All();
      expected.target = expected.draft;
      const std::vector<std::string> answers = ScalarAnswers(full, expected);
      RoundBatch batch = narrow.All();
      batch.target = batch.draft;
      CheckAll(narrow, batch, options, answers);
    }
  }
}

}  // namespace
}  // namespace specd
