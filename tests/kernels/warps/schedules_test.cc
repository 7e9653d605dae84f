// Whole tasks under many schedules of a block's warps; and that barriers matter: without one of
// them some schedule gives something else.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr VerifyMethod kMethods[] = {VerifyMethod::kGreedy, VerifyMethod::kExactMatch,
                                     VerifyMethod::kToken, VerifyMethod::kBlock};

// A thread whose block leaves out one barrier.
class HastyThread {
 public:
  // Counts barriers in *num_syncs.
  HastyThread(const EmulatedThread& thread, int32_t left_out, int32_t* num_syncs)
      : thread_(thread), left_out_(left_out), num_syncs_(num_syncs) {}

  int32_t lane() const { return thread_.lane(); }
  int32_t warp() const { return thread_.warp(); }
  int32_t num_warps() const { return thread_.num_warps(); }
  uint32_t Shuffle(uint32_t value, int32_t source) const { return thread_.Shuffle(value, source); }
  uint32_t Ballot(bool predicate) const { return thread_.Ballot(predicate); }
  int32_t LargestOfWarp(int32_t value) const { return thread_.LargestOfWarp(value); }
  uint32_t SumOfWarp(uint32_t value) const { return thread_.SumOfWarp(value); }
  void Sync() const {
    if ((*num_syncs_)++ != left_out_) thread_.Sync();
  }

 private:
  EmulatedThread thread_;
  int32_t left_out_;
  int32_t* num_syncs_;
};

// Drafts of five rows whose largest element is in another tile each time.
struct Spikes {
  static constexpr int32_t kVocabSize = 6 * kTileSize;

  explicit Spikes(double spike) : rows({.vocab_size = kVocabSize, .num_rows = 5}) {
    for (int row = 0; row < 5; ++row) {
      std::vector<double> logits(kVocabSize, -8.0 + row);
      for (int32_t id = 0; id < kVocabSize; id += 64) logits[id] += id % 640 / 64;
      logits[Likely(row)] = spike;
      rows.Set(row, logits);
      if (row < 4) draft.push_back(Likely(row));
    }
  }
  static TokenId Likely(int row) { return (2048 * row + 5) % kVocabSize; }

  RowMatrix rows;
  std::vector<TokenId> draft;
};

TEST_SUITE("unit") {
  // Two groups only overlap where one is still reading what the other writes again; that takes
  // several rounds of passes and many schedules to meet.
  TEST_CASE("a workspace is never written again before it has been read") {
    const Spikes spikes(30);
    for (const VerifyMethod method : kMethods) {
      ChainCase chain(method, spikes.draft, DraftKind::kSampled);
      const TensorView view = spikes.rows.view();
      const ChainResult expected = RunScalar(chain.task, view, view, KeyedCoins(1));
      CHECK(expected.outcome.num_accepted == 4);
      for (uint64_t seed = 0; seed < 40; ++seed) {
        CAPTURE(seed);
        const ChainResult result = RunEmulated(chain.task, view, view, KeyedCoins(1),
                                               {.num_threads = 128, .schedule_seed = seed});
        REQUIRE(result == expected);
      }
    }
  }

  // Filters go over the row and over lists several times each.
  TEST_CASE("the same where filters search") {
    const Spikes spikes(0);
    for (const VerifyMethod method : {VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      ChainCase chain(method, spikes.draft, DraftKind::kOneHot);
      chain.task.target_filters.top_k = 300;
      chain.task.target_filters.top_p = kTopPOff / 10 * 9;
      const TensorView view = spikes.rows.view();
      const ChainResult expected = RunScalar(chain.task, view, view, KeyedCoins(2));
      for (uint64_t seed = 0; seed < 25; ++seed) {
        CAPTURE(seed);
        const ChainResult result = RunEmulated(chain.task, view, view, KeyedCoins(2),
                                               {.num_threads = 128, .schedule_seed = seed});
        REQUIRE(result == expected);
      }
    }
  }

  TEST_CASE("without a barrier some schedule is noticed") {
    const Spikes spikes(30);
    const TensorView view = spikes.rows.view();
    ChainCase chain(VerifyMethod::kExactMatch, spikes.draft, DraftKind::kOneHot);
    const ChainResult expected = RunScalar(chain.task, view, view, KeyedCoins(1));
    // The number of barriers, with none left out.
    int32_t num_syncs = 0;
    const auto run = [&](int32_t left_out, uint64_t seed) {
      ChainRun chain_run(chain.task, view, view);
      TaskOutcome outcome;
      const std::string error =
          RunEmulatedBlock({.num_threads = 128, .schedule_seed = seed}, [&](EmulatedThread thread) {
            int32_t of_thread = 0;
            WarpTeam<HastyThread> team(HastyThread(thread, left_out, &of_thread));
            const TaskOutcome mine = chain_run.By(team, KeyedCoins(1));
            if (!team.leader()) return;
            outcome = mine;
            num_syncs = of_thread;
          });
      return error.empty() && chain_run.Finish(outcome) == expected;
    };
    REQUIRE(run(-1, 0));
    const int32_t num_barriers = num_syncs;
    CHECK(num_barriers >= 4);
    // The first one keeps a pass from what was read before it, and there is nothing before it.
    for (int32_t left_out = 1; left_out < num_barriers; ++left_out) {
      CAPTURE(left_out);
      int32_t unnoticed = 0;
      while (unnoticed < 200 && run(left_out, unnoticed)) ++unnoticed;
      CHECK(unnoticed < 200);
    }
  }
}

}  // namespace
}  // namespace specd
