// BlockRound is a random round of block verification for tests, which counts what it takes.
//
// CountingTeam counts Syncs: each pass over rows is between two of them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "tests/kernels/bodies/packed_steps.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/rows.h"

namespace specd {

class CountingTeam : public ScalarTeam<CpuTarget::kBaseline> {
 public:
  void Sync() { ++num_syncs; }
  int32_t num_syncs = 0;
};

// A block of four tokens. Drafts are nearly right, or have nothing to do with the target. If a
// draft is nearly sure of its token, the bound is nearly the mass.
class BlockRound {
 public:
  BlockRound(std::mt19937_64& random, int32_t vocab_size, const Filters& filters, bool by_side)
      : target_({.vocab_size = vocab_size, .num_rows = kNumDrafts + 1}),
        draft_({.vocab_size = vocab_size, .num_rows = kNumDrafts}) {
    const double noise = 0.02 * std::pow(2.0, static_cast<double>(random() % 8));
    const double sharpness = random() % 3 == 0 ? 1.0 : 6.0;
    const bool takes_best = random() % 2 == 0;
    const OwnedWorkspace workspace(vocab_size);
    CountingTeam team;
    for (int32_t i = 0; i <= kNumDrafts; ++i) {
      std::vector<double> row = RandomLogits(random, vocab_size, 1.0);
      target_.Set(i, row);
      if (i == kNumDrafts) break;
      for (double& x : row) x = sharpness * x + noise * std::normal_distribution<>()(random);
      draft_.Set(i, row);
      const auto best = std::max_element(row.begin(), row.end()) - row.begin();
      const TokenId id = static_cast<TokenId>(takes_best ? best : random() % vocab_size);
      tokens_.push_back(id);
      const Distribution q =
          ReadDistribution(team, PlainRow(draft_.row(i)), ScaleOf(1), filters, workspace->draft);
      weights_.push_back(WeightOf(q, id));
      masses_.push_back(q.mass);
    }
    chain_ = std::make_unique<ChainCase>(VerifyMethod::kBlock, tokens_, DraftKind::kSampled);
    Task& task = chain_->task;
    task.target_scale = task.draft_scale = ScaleOf(1);
    task.target_filters = task.draft_filters = filters;
    if (by_side) task.draft.draft_weights = weights_.data();
    if (by_side) task.draft.draft_masses = masses_.data();
  }

  // What a recorded round takes more than a plain one, which has the same answer.
  int32_t NumSyncsOfRecord(const KeyedCoins& coins, bool has_bounds) {
    std::vector<PlaceDecision> decisions(kNumDrafts + 1);
    Task& task = chain_->task;
    while (RecordsBounds(task.seed, task.round_base) != has_bounds) ++task.round_base;
    CountingTeam plain;
    CountingTeam recorded;
    const ChainResult answer = Run(plain, coins, nullptr);
    REQUIRE(answer == Run(recorded, coins, decisions.data()));
    return recorded.num_syncs - plain.num_syncs;
  }

 private:
  static constexpr int32_t kNumDrafts = 4;

  ChainResult Run(CountingTeam& team, const KeyedCoins& coins, PlaceDecision* decisions) const {
    ChainRun run(chain_->task, target_.view(), draft_.view());
    run.batch.decisions = decisions;
    run.batch.decisions_stride = kNumDrafts + 1;
    return run.Finish(run.By(team, coins));
  }

  RowMatrix target_;
  RowMatrix draft_;
  std::vector<TokenId> tokens_;
  std::vector<float> weights_;
  std::vector<double> masses_;
  std::unique_ptr<ChainCase> chain_;
};

}  // namespace specd
