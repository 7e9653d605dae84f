// TreeOracle verifies drafts that are trees for tests, from the recursive definition of the rules.
//
// At a place the target t begins as p. The proposal d of a child is all on its id (kOneHot), q
// (kSampled), or q without the ids of the one-hot siblings and of the earlier siblings of its kind,
// renormalised (kSampledRest). A child falls, and t becomes (t - d)+ divided by its sum; traversal
// weighs t with the probability P of the path before. Dense vectors in double, one loop for each
// sum, and nothing of the kernels' two numbers for a place. A TreeWorld answers for rows, tokens
// and coins, so a test may enumerate them.
#pragma once

#include <vector>

#include "kernels/core/draft.h"
#include "tools/oracle/oracle.h"

namespace specd::oracle {

struct Tree {
  std::vector<int> parents;  // an earlier node, or -1
  std::vector<DraftKind> kinds;

  int num_nodes() const { return static_cast<int>(parents.size()); }
};

// Deliberate faults of the rules.
struct TreeFault {
  bool merged_duplicates = false;   // equal sampled siblings are judged once
  bool rest_as_drawn_with = false;  // q is the proposal of kSampledRest
  bool one_hot_in_rest = false;     // the ids of one-hot siblings stay in the proposal
  bool no_path_update = false;      // traversal: P stays after a leaf went
  bool end_takes_siblings = false;  // an id outside the vocabulary ends the siblings' branches too
  bool side_of_whole_row = false;   // the side channel of kSampledRest is q(x), not divided
  bool one_hot_first = false;       // no fault of the law: fewer tokens are accepted

  bool Any() const {
    return merged_duplicates || rest_as_drawn_with || one_hot_in_rest || no_path_update ||
           end_takes_siblings || side_of_whole_row || one_hot_first;
  }
};

// The rows, tokens and coins of one round. Place 0 follows the kept tokens, place i + 1 node i.
class TreeWorld {
 public:
  virtual ~TreeWorld() = default;
  virtual Probabilities TargetAt(int place) = 0;
  virtual Probabilities DraftAt(int place) = 0;
  // Called before the tokens of the children are asked for.
  virtual void DrawChildren(int place) = 0;
  virtual int TokenOf(int node) = 0;
  // Whether u < probability, with the ACCEPT coin of the node. `mass` divides the probability's
  // numerator; rounding of the kernel counts in its units.
  virtual bool Accepts(int node, double probability, double mass) = 0;
  // A token with the SAMPLE coin, or with the RESIDUAL coin of the place.
  virtual int Sample(int place, const Probabilities& law) = 0;
  virtual int Replace(int place, const Probabilities& law, double mass) = 0;
  // The interval of the place's TREE coin.
  virtual int Choose(int place, const std::vector<double>& ends) = 0;
};

struct TreeResult {
  std::vector<int> path;  // the nodes that stand
  int token = -1;         // the token that follows
};

class TreeOracle {
 public:
  TreeOracle(const Tree& tree, TreeWorld& world, const TreeFault& fault = {})
      : tree_(tree), world_(world), fault_(fault) {}

  // kGreedy needs target rows with one largest id. kToken and kBlock are no methods of trees.
  TreeResult Verify(VerifyMethod method);

 private:
  std::vector<int> ChildrenOf(int place);  // in the order of verification, without ended branches
  Probabilities ProposalOf(int place, int node);
  double ShareOf(int place, int node, const Probabilities& proposal);
  int ChildNamed(int place, int token);
  void WalkEqual(bool greedy);
  void WalkTargetOnly();
  void WalkTree();
  bool Traverse(int place, double path, double mass);

  const Tree& tree_;
  TreeWorld& world_;
  const TreeFault fault_;
  TreeResult result_;
};

}  // namespace specd::oracle
