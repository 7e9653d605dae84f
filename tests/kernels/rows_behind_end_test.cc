// Rows behind the place where a draft ends are not read on a GPU (the tile pass), and that changes
// nothing.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/bodies/fused_round.h"
#include "kernels/bodies/list_rows.h"
#include "tests/kernels/run_chain.h"
#include "tests/support/emulated_block.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = 2 * kTileSize;
constexpr int32_t kNumDrafts = 3;

// Four rows, each a page or more by itself, so that one can be taken away.
class FourRows {
 public:
  FourRows() {
    memory_ = static_cast<float*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory_ != MAP_FAILED);
    REQUIRE(kVocabSize * sizeof(float) % static_cast<size_t>(sysconf(_SC_PAGESIZE)) == 0);
  }
  FourRows(const FourRows&) = delete;
  FourRows& operator=(const FourRows&) = delete;
  ~FourRows() { munmap(memory_, kBytes); }

  float* row(int32_t i) const { return memory_ + i * kVocabSize; }
  void TakeAway(int32_t first) const {
    const size_t row_bytes = kVocabSize * sizeof(float);
    REQUIRE(mprotect(row(first), (kNumDrafts + 1 - first) * row_bytes, PROT_NONE) == 0);
  }
  TensorView view() const {
    return {memory_, DType::kFloat32, kNumDrafts + 1, kVocabSize, kVocabSize, {}};
  }

 private:
  static constexpr size_t kBytes = (kNumDrafts + 1) * kVocabSize * sizeof(float);
  float* memory_;
};

// One warp takes the rows in order of place, so it knows of a rejection before it comes to the
// next row.
ChainOutcome RunByOneWarp(const RoundBatch& batch) {
  std::vector<AheadRow> rows(NumSlots(kNumDrafts));
  std::vector<int32_t> row_arrivals(NumSlots(kNumDrafts));
  TaskProgress progress;
  std::vector<char> workspace(FusedWorkspaceBytes(kVocabSize, kNumDrafts), char(kPoison));
  FusedRound fused{.batch = batch,
                   .rows = rows.data(),
                   .row_arrivals = row_arrivals.data(),
                   .progress = &progress,
                   .workspaces = workspace.data(),
                   .max_draft = kNumDrafts};
  ListRowsAhead(batch, kNumDrafts, rows.data(), row_arrivals.data(), &progress, &fused);
  REQUIRE(!fused.may_defer);
  REQUIRE(RunEmulatedBlocks({.num_threads = 32},
                            [&](EmulatedThread thread) { RunFusedRound(thread, fused); }) == "");
  return batch.outcomes[0];
}

TEST_SUITE("unit") {
  TEST_CASE("a row behind a rejection is not read") {
    std::mt19937_64 random(62);
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      for (int32_t rejected = 0; rejected < kNumDrafts; ++rejected) {
        CAPTURE(static_cast<int>(method));
        CAPTURE(rejected);
        const FourRows rows;
        std::vector<TokenId> draft;
        for (int32_t i = 0; i <= kNumDrafts; ++i) {
          for (int32_t id = 0; id < kVocabSize; ++id) {
            rows.row(i)[id] = static_cast<float>(random() % 1000) * 1e-3f;
          }
          const auto likely = static_cast<TokenId>(random() % kVocabSize);
          rows.row(i)[likely] = 90.0f;  // beside it nothing has any weight
          draft.push_back(i == rejected ? (likely + 1) % kVocabSize : likely);
        }
        draft.resize(kNumDrafts);
        const TokenId after = static_cast<TokenId>(
            std::max_element(rows.row(rejected), rows.row(rejected) + kVocabSize) -
            rows.row(rejected));
        ChainCase chain(method, draft, DraftKind::kOneHot);
        rows.TakeAway(rejected + 1);
        ChainOutcome outcome;
        TokenId tokens[kNumDrafts + 1] = {};
        RoundBatch batch;
        batch.target = rows.view();
        batch.tasks = &chain.task;
        batch.num_tasks = 1;
        batch.outcomes = &outcome;
        batch.tokens = tokens;
        batch.tokens_stride = kNumDrafts + 1;
        RunByOneWarp(batch);
        CHECK(outcome.status == OutcomeStatus::kOk);
        CHECK(outcome.num_accepted == rejected);
        REQUIRE(outcome.num_tokens == rejected + 1);
        for (int32_t i = 0; i < rejected; ++i) CHECK(tokens[i] == draft[i]);
        CHECK(tokens[rejected] == after);
      }
    }
  }
}

}  // namespace
}  // namespace specd
