// Runs VerifyChain on one sequence for tests: with any coins, by any team. What several tests of
// the bodies would otherwise each write for themselves.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/bodies/verify.h"
#include "kernels/cpu/scalar_team.h"
#include "tests/support/emulated_block.h"

namespace specd {

// A task that owns its arrays. Target rows are first_row, first_row + 1, ... and draft rows the
// same numbers of the draft tensor.
class ChainCase {
 public:
  ChainCase(VerifyMethod method, std::vector<TokenId> draft, DraftKind kind, uint32_t first_row = 0)
      : tokens_(std::move(draft)), kinds_(tokens_.size(), kind) {
    for (size_t i = 0; i <= tokens_.size(); ++i) rows_.push_back(first_row + uint32_t(i));
    task.method = method;
    task.target_scale = task.draft_scale = 1.0f;
    task.chain.num_drafts = static_cast<int32_t>(tokens_.size());
    task.chain.tokens = tokens_.data();
    task.chain.kinds = kinds_.data();
    task.chain.target_rows = rows_.data();
    task.chain.draft_rows = rows_.data();
  }
  ChainCase(const ChainCase&) = delete;
  ChainCase& operator=(const ChainCase&) = delete;

  ChainTask task;

 private:
  std::vector<TokenId> tokens_;
  std::vector<DraftKind> kinds_;
  std::vector<uint32_t> rows_;
};

struct ChainResult {
  ChainOutcome outcome;
  std::vector<TokenId> tokens;

  bool operator==(const ChainResult& other) const {
    return tokens == other.tokens && outcome.status == other.outcome.status &&
           outcome.num_accepted == other.outcome.num_accepted &&
           outcome.num_tokens == other.outcome.num_tokens &&
           outcome.empty_residuals == other.outcome.empty_residuals &&
           outcome.invalid_drafts == other.outcome.invalid_drafts;
  }
};

// What a workspace holds before a round: nothing that a body may count on.
inline std::vector<uint64_t> PoisonedWorkspace(int32_t vocab_size) {
  std::vector<uint64_t> memory(ChainWorkspaceBytes(vocab_size) / 8);
  std::memset(memory.data(), kPoison, memory.size() * 8);
  return memory;
}

template <typename Coins>
ChainResult RunScalar(const ChainTask& task, const TensorView& target, const TensorView& draft,
                      const Coins& coins) {
  std::vector<uint64_t> memory = PoisonedWorkspace(target.vocab_size);
  ScalarTeam<CpuTarget::kBaseline> team;
  ChainResult result;
  result.tokens.resize(task.chain.num_drafts + 1);
  result.outcome =
      VerifyChain(team, task, target, draft, ChainWorkspaceAt(memory.data(), target.vocab_size),
                  coins, result.tokens.data());
  result.tokens.resize(result.outcome.num_tokens);
  return result;
}

template <typename Coins>
ChainResult RunEmulated(const ChainTask& task, const TensorView& target, const TensorView& draft,
                        const Coins& coins, const EmulationOptions& options) {
  std::vector<uint64_t> memory = PoisonedWorkspace(target.vocab_size);
  std::vector<ChainOutcome> outcomes(options.num_threads);
  ChainResult result;
  result.tokens.resize(task.chain.num_drafts + 1);
  const std::string error = RunEmulatedBlock(options, [&](EmulatedThread thread) {
    EmulatedTeam team(thread);
    outcomes[thread.warp() * 32 + thread.lane()] =
        VerifyChain(team, task, target, draft, ChainWorkspaceAt(memory.data(), target.vocab_size),
                    coins, result.tokens.data());
  });
  REQUIRE(error == "");
  result.outcome = outcomes[0];
  result.tokens.resize(result.outcome.num_tokens);
  for (const ChainOutcome& outcome : outcomes) {
    REQUIRE(ChainResult{outcome, result.tokens} == result);
  }
  return result;
}

}  // namespace specd
