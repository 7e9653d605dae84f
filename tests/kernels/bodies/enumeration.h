// Enumeration computes the joint law of several rounds for tests, and compares the kernel with the
// oracle in every cell (CONTRACT §10, "Exact").
//
// The oracle's round asks for parts of coins (coin_paths.h) under the keys of CONTRACT §4. In every
// cell that it can reach, VerifyChain runs with each of the cell's coins just inside either end of
// its interval. VerifyChain must emit the oracle's tokens. SampleDraft runs in the same way for
// every draft token. The sum of the cells' volumes is the law of the text. A coin stays narrowed
// for later rounds while its key can be asked for again. If two decisions share a key, the law is
// therefore wrong.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tests/kernels/bodies/chain_model.h"
#include "tests/kernels/bodies/coin_paths.h"
#include "tests/kernels/bodies/packed_steps.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tools/oracle/tree_oracle.h"

namespace specd {

// Deliberate faults. With a fault the kernel does not run: the law alone has to show it.
struct Fault {
  bool position_only_keys = false;  // coins keyed by position and purpose alone
  bool accept_shared_with_residual = false;
  bool draft_shared_with_residual = false;
  bool draft_shared_with_sample = false;  // a draft token has the coin of its output position
  bool library_by_position = false;       // library drafts with one round base for all rounds
  bool outside_verified = false;          // an id outside the vocabulary is rejected like any token
  bool wide_side_channel = false;         // token: q(x) is that of the drafter's wider row
  bool residual_is_p = false;             // a rejected token is replaced from p
  bool residual_not_renormalised = false;  // the missing mass goes to the last id
  bool cut_at_forbidden = false;           // the drafter drops a token with p(x) = 0
  bool early_break = false;                // block: the walk up stops at the first failure
  bool q_unedited = false;                 // verification ignores the edits of the drafter's rows
  bool sibling_keys = false;               // a node's coins have its number among its siblings
  bool other_branch = false;               // a place is edited with the ancestors of another branch
  oracle::TreeFault tree = {};

  bool Any() const {
    return position_only_keys || accept_shared_with_residual || draft_shared_with_residual ||
           draft_shared_with_sample || library_by_position || outside_verified ||
           wide_side_channel || residual_is_p || residual_not_renormalised || cut_at_forbidden ||
           early_break || q_unedited || sibling_keys || other_branch || tree.Any();
  }
};

class Enumeration {
 public:
  Enumeration(const ModelOptions& options, const Fault& fault) : model_(options), fault_(fault) {}

  // The total variation between the law of the text and the target's.
  double Run();

  int64_t num_kernel_runs() const { return num_kernel_runs_; }
  int64_t num_cells() const { return num_cells_; }
  int64_t num_narrow_cells() const { return num_narrow_cells_; }
  int most_rounds() const { return most_rounds_; }
  // The mean of a round that starts the text.
  double mean_accepted() const { return mean_accepted_; }

 private:
  struct State {
    double probability = 0;
    int rounds = 0;
  };
  // The input and result of a round, which the kernel repeats.
  struct Record {
    Tokens draft;
    std::vector<bool> is_drawn;  // of the nodes of a tree; those of other places may be anything
    Tokens emitted;
    std::vector<int> path;
  };
  class TreeRound;

  void Follow(const Tokens& text, const CoinParts& coins, const State& state);
  Record Round(const Tokens& text, CoinPaths& paths);
  bool DrawDraft(const Tokens& text, CoinPaths& paths, Record* record);
  oracle::Probabilities VerifiedAs(const Tokens& context, size_t i, TokenId token);
  void WalkToken(const Tokens& text, CoinPaths& paths, Record* record);
  void WalkExactMatch(const Tokens& text, CoinPaths& paths, Record* record);
  void WalkBlock(const Tokens& text, CoinPaths& paths, Record* record);
  void WalkTree(const Tokens& text, CoinPaths& paths, Record* record);
  // What the side channel says of a node: the probability that the drafter drew its token with.
  double ShareOf(const Tokens& text, const Tokens& draft, size_t node);
  // The draft tokens from the root to a place.
  Tokens PrefixOf(const Tokens& draft, size_t place) const;
  void Finish(size_t stop, const oracle::Probabilities& p, const oracle::Probabilities* q, double a,
              const Tokens& text, CoinPaths& paths, Record* record);

  CoinIdentity IdentityOf(const CoinKey& key) const;
  CoinKey KeyOf(const Tokens& text, size_t place, size_t node, Purpose purpose) const {
    return {static_cast<uint32_t>(text.size() + place), static_cast<uint32_t>(text.size()),
            static_cast<uint32_t>(node), purpose};
  }
  double MarginFor(double mass) const {
    return model_.options().powers_of_two ? 0x1p-38 : 0x1p-18 / std::min(1.0, mass);
  }

  void CheckVerify(const Tokens& text, const Record& record, const CoinParts& used);
  void CheckDraft(const Tokens& text, size_t i, const CoinKey& key, const ChainModel::Place& place);
  uint64_t CoinIn(const CoinPart& part, bool at_high) const;

  ChainModel model_;
  const Fault fault_;
  std::map<size_t, std::map<std::pair<Tokens, CoinParts>, State>> states_;  // by length of text
  std::map<Tokens, double> law_;
  std::set<std::pair<Tokens, size_t>> drafts_checked_;
  int64_t num_kernel_runs_ = 0;
  int64_t num_cells_ = 0;
  int64_t num_narrow_cells_ = 0;
  int most_rounds_ = 0;
  double mean_accepted_ = 0;
};

}  // namespace specd
