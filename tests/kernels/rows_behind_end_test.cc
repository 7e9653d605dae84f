// Rows behind the place where a draft ends are not read on a GPU (the tile pass), and that changes
// nothing.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "kernels/bodies/fused_round.h"
#include "kernels/bodies/list_rows.h"
#include "kernels/bodies/resolve.h"
#include "tests/kernels/run_chain.h"
#include "tests/support/emulated_block.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = 16 * kTileSize;
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

// A round of one task, with room for its answer.
struct OneTask {
  OneTask(const ChainTask& task, const TensorView& target) {
    batch.target = target;
    batch.tasks = &task;
    batch.num_tasks = 1;
    batch.outcomes = &outcome;
    batch.tokens = tokens;
    batch.tokens_stride = kNumDrafts + 1;
    batch.scores = scores;
    batch.scores_stride = NumScores(task.scores);
  }

  // between(fused): what happens between the launches.
  void Run(const EmulationOptions& options, bool may_defer = false,
           const std::function<void(const FusedRound&)>& between = {}) {
    std::vector<AheadRow> rows(NumSlots(kNumDrafts));
    std::vector<int32_t> row_arrivals(NumSlots(kNumDrafts));
    TaskProgress progress;
    std::vector<char> workspace(FusedWorkspaceBytes(kVocabSize, kNumDrafts), char(kPoison));
    std::vector<char> scratch(ResolveBytes(kNumDrafts, 0), char(kPoison));
    ChainTask resolved;
    FusedRound fused{.batch = batch,
                     .rows = rows.data(),
                     .row_arrivals = row_arrivals.data(),
                     .progress = &progress,
                     .workspaces = workspace.data(),
                     .max_draft = kNumDrafts,
                     .resolve = {batch.tasks, &resolved, scratch.data(), kNumDrafts}};
    ListRowsAhead(batch, kNumDrafts, rows.data(), row_arrivals.data(), &progress, &fused);
    REQUIRE(fused.may_defer == may_defer);
    fused.batch.tasks = &resolved;
    REQUIRE(RunEmulatedBlocks(options, [&](EmulatedThread thread) { RunResolve(thread, fused); }) ==
            "");
    REQUIRE(RunEmulatedBlocks(options,
                              [&](EmulatedThread thread) { RunFusedRound(thread, fused); }) == "");
    deferred = progress.at_once == 0 || progress.deferred != 0;
    if (between) between(fused);
    if (may_defer) {
      REQUIRE(RunEmulatedBlocks(
                  options, [&](EmulatedThread thread) { RunDeferredTasks(thread, fused); }) == "");
    }
    REQUIRE(progress.end_seen == 0);
  }

  RoundBatch batch;
  ChainOutcome outcome;
  TokenId tokens[kNumDrafts + 1] = {};
  TokenScore scores[kNumDrafts + 1];  // where asked for, of each token alone
  bool deferred = false;              // to the second launch
};

// Filters that leave few ids of a row where one id has nearly all mass, in all their forms.
std::vector<Filters> NarrowFilters() {
  constexpr auto kShare = static_cast<uint64_t>(0.95 * kTopPOff);
  return {{},
          {.top_k = 1},
          {.top_k = 40},
          {.top_p = kShare},
          {.min_p = -4},
          {.min_p = -4, .top_k = 20, .top_p = kShare},
          {.top_k = 20, .top_p = kShare, .joint = true}};
}

TEST_SUITE("unit") {
  TEST_CASE("a row behind a rejection is not read") {
    std::mt19937_64 random(62);
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      for (size_t n = 0; n < kNumDrafts * NarrowFilters().size(); ++n) {
        const auto rejected = static_cast<int32_t>(n % kNumDrafts);
        const size_t filters = n / kNumDrafts;
        CAPTURE(static_cast<int>(method));
        CAPTURE(filters);
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
        chain.task.target_filters = NarrowFilters()[filters];
        rows.TakeAway(rejected + 1);
        OneTask round(chain.task, rows.view());
        // One warp takes the rows in order of place, so it knows of a rejection before it comes to
        // the next row.
        round.Run({.num_threads = 32}, filters > 0 && method != VerifyMethod::kGreedy);
        CHECK_FALSE(round.deferred);
        const ChainOutcome& outcome = round.outcome;
        CHECK(outcome.status == OutcomeStatus::kOk);
        CHECK(outcome.num_accepted == rejected);
        REQUIRE(outcome.num_tokens == rejected + 1);
        for (int32_t i = 0; i < rejected; ++i) CHECK(round.tokens[i] == draft[i]);
        CHECK(round.tokens[rejected] == after);
      }
    }
  }

  TEST_CASE("a row behind a rejection is not read where tokens are scored") {
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      for (int32_t rejected = 0; rejected < kNumDrafts; ++rejected) {
        CAPTURE(static_cast<int>(method));
        CAPTURE(rejected);
        const FourRows rows;
        std::fill_n(rows.row(0), (kNumDrafts + 1) * kVocabSize, 0.0f);
        std::vector<TokenId> draft;
        for (int32_t i = 0; i < kNumDrafts; ++i) {
          rows.row(i)[700 + i] = 90.0f;
          draft.push_back(i == rejected ? 5 : 700 + i);
        }
        ChainCase chain(method, draft, DraftKind::kOneHot);
        chain.task.scores = {.enabled = true, .mode = ScoreMode::kRawLogit};
        rows.TakeAway(rejected + 1);
        OneTask round(chain.task, rows.view());
        round.Run({.num_threads = 32}, true);
        CHECK(round.outcome.status == OutcomeStatus::kOk);
        REQUIRE(round.outcome.num_tokens == rejected + 1);
        for (int32_t i = 0; i <= rejected; ++i) {
          CHECK(round.tokens[i] == 700 + i);
          CHECK(round.scores[i].id == 700 + i);
          CHECK(round.scores[i].value == 90.0f);
          CHECK(round.scores[i].rank == 1);
        }
      }
    }
  }

  TEST_CASE("a row behind the rejection of a sampled token is not read") {
    std::mt19937_64 random(64);
    for (size_t n = 0; n < kNumDrafts * NarrowFilters().size(); ++n) {
      const auto rejected = static_cast<int32_t>(n % kNumDrafts);
      const Filters filters = NarrowFilters()[n / kNumDrafts];
      CAPTURE(n);
      const FourRows target;
      const FourRows drafts;
      std::vector<TokenId> draft;
      std::vector<TokenId> likely;
      for (int32_t i = 0; i <= kNumDrafts; ++i) {
        for (int32_t id = 0; id < kVocabSize; ++id) {
          target.row(i)[id] = static_cast<float>(random() % 1000) * 1e-3f;
          drafts.row(i)[id] = static_cast<float>(random() % 1000) * 1e-3f;
        }
        // Beside these nothing has any weight, so where they are the same the token stands.
        likely.push_back(static_cast<TokenId>(random() % kVocabSize));
        draft.push_back(i == rejected ? (likely.back() + 1) % kVocabSize : likely.back());
        target.row(i)[likely.back()] = 90.0f;
        drafts.row(i)[draft.back()] = 90.0f;
      }
      draft.resize(kNumDrafts);
      ChainCase chain(VerifyMethod::kToken, draft, DraftKind::kSampled);
      chain.task.target_filters = chain.task.draft_filters = filters;
      target.TakeAway(rejected + 1);
      drafts.TakeAway(rejected + 1);
      OneTask round(chain.task, target.view());
      round.batch.draft = drafts.view();
      round.Run({.num_threads = 32}, true);
      CHECK(round.outcome.status == OutcomeStatus::kOk);
      CHECK(round.outcome.num_accepted == rejected);
      REQUIRE(round.outcome.num_tokens == rejected + 1);
      for (int32_t i = 0; i < rejected; ++i) CHECK(round.tokens[i] == draft[i]);
      CHECK(round.tokens[rejected] == likely[rejected]);
    }
  }

  TEST_CASE("a sampled token that fell does not stand because its row has changed since") {
    const FourRows target;
    const FourRows drafts;
    std::fill_n(target.row(0), (kNumDrafts + 1) * kVocabSize, 0.0f);
    std::fill_n(drafts.row(0), (kNumDrafts + 1) * kVocabSize, 0.0f);
    const std::vector<TokenId> draft = {10, 11, 12};
    for (int32_t i = 0; i < kNumDrafts; ++i) {
      drafts.row(i)[draft[static_cast<size_t>(i)]] = 90.0f;
      target.row(i)[i == kNumDrafts - 1 ? 500 : draft[static_cast<size_t>(i)]] = 90.0f;
    }
    ChainCase chain(VerifyMethod::kToken, draft, DraftKind::kSampled);
    OneTask round(chain.task, target.view());
    round.batch.draft = drafts.view();
    // The last row was not read. Memory that is used again may hold any verdict about it.
    round.Run({.num_threads = 32}, true, [&](const FusedRound& fused) {
      target.row(kNumDrafts - 1)[draft.back()] = 90.0f;
      const ChainWorkspace workspace = FusedWorkspaceAt(fused, 0);
      AheadFacts* const facts = AheadAt(workspace.ahead, TargetSlot(kNumDrafts), kVocabSize).facts;
      facts->place.verdict = Verdict::kStands;
    });
    CHECK(round.deferred);
    CHECK(round.outcome.status == OutcomeStatus::kBadTargetRow);
    CHECK(round.outcome.num_tokens == kNumDrafts - 1);
  }

  TEST_CASE("a row behind the end of a draft that only the device knows is read by nobody") {
    std::mt19937_64 random(63);
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      for (int32_t num_drafts = 0; num_drafts < kNumDrafts; ++num_drafts) {
        CAPTURE(static_cast<int>(method));
        CAPTURE(num_drafts);
        const FourRows rows;
        std::fill_n(rows.row(0), (kNumDrafts + 1) * kVocabSize, 0.0f);
        // All draft tokens stand, so that the decision comes as far as it can.
        std::vector<TokenId> row(kNumDrafts, kNoToken);
        for (int32_t i = 0; i < num_drafts; ++i) row[static_cast<size_t>(i)] = 100 + i;
        for (int32_t i = 0; i <= num_drafts; ++i) rows.row(i)[100 + i] = 90.0f;
        ChainCase chain(method, std::vector<TokenId>(kNumDrafts), DraftKind::kOneHot);
        chain.task.drafts_by_slot = true;
        chain.task.chain.tokens = nullptr;
        rows.TakeAway(num_drafts + 1);
        OneTask round(chain.task, rows.view());
        round.batch.draft_tokens = {row.data(), kNumDrafts};
        round.Run({.num_threads = 96, .schedule_seed = random(), .num_blocks = 3});
        CHECK(round.outcome.status == OutcomeStatus::kOk);
        CHECK(round.outcome.num_accepted == num_drafts);
        CHECK(round.outcome.num_drafts == num_drafts);
        for (int32_t i = 0; i <= num_drafts; ++i) CHECK(round.tokens[i] == 100 + i);
      }
    }
  }
}

}  // namespace
}  // namespace specd
