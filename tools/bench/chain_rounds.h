// ChainRounds has a chain in place of each tree of a RoundSet, for the ratio of `tree` in
// `verify`.
//
// The chain of a sequence has the nodes that its tree accepted. If a drawn child of the last place
// was rejected, one more token follows, and is rejected. `token` then reads the target and draft
// rows of the places that `tree` came to, each once, and the residual of the last one. Coins are
// injected, so that the chain ends there. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/round_set.h"

namespace specd::bench {

class ChainRounds {
 public:
  // `answers` are those of the set, one for each round. Runs each round of chains once, to see that
  // they end where they should. REQUIRES: the case is a tree under VerifyMethod::kTree; `set`
  // outlives the chains.
  static absl::StatusOr<std::unique_ptr<ChainRounds>> Make(const RoundSet& set,
                                                           std::span<const RoundAnswer> answers,
                                                           Backend* backend);

  // The answer belongs to this class.
  RoundBatch Batch(int32_t round);

 private:
  struct Chain {
    std::vector<TokenId> tokens;
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> target_rows;
    std::vector<uint32_t> draft_rows;
    std::vector<InjectedCoin> coins;
  };

  explicit ChainRounds(const RoundSet& set) : set_(set), answer_(set.MakeAnswer()) {}
  void Add(const Task& tree, std::span<const int32_t> path);
  // The id with the greatest q / p.
  TokenId LikeliestToFall(const Task& tree, uint32_t target_row, uint32_t draft_row) const;

  const RoundSet& set_;
  RoundAnswer answer_;
  std::vector<Chain> chains_;  // of each task; they own what `tasks_` point at
  std::vector<Task> tasks_;
};

}  // namespace specd::bench
