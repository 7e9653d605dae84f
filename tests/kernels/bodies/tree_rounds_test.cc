// Random rounds of trees: a chain that is spelled as a tree has the bits of the chain, and every
// processor, batch, number of threads and order of nodes gives one answer.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/bodies/every_processor.h"
#include "tests/support/round_trees.h"

namespace specd {
namespace {

constexpr int32_t kBatch = 192;
constexpr int32_t kMaxDraft = 8;

std::vector<RoundCase::Options> AllOptions() { return RoundsOfEveryKind(kBatch, 900); }

// The answers without the names of the methods.
std::vector<std::string> Unnamed(std::vector<std::string> answers) {
  for (std::string& answer : answers) answer.erase(0, answer.find(':'));
  return answers;
}

// A tree that can be verified with its nodes in any order. Where the coins follow the nodes, their
// numbers change nothing.
class SmallTree {
 public:
  static constexpr int32_t kNodes = 7;

  SmallTree(int32_t vocab_size, bool with_replacement, std::mt19937_64& random)
      : target_({.vocab_size = vocab_size, .num_rows = kNodes + 1}),
        draft_({.vocab_size = vocab_size, .num_rows = kNodes + 1}) {
    for (int row = 0; row <= kNodes; ++row) {
      target_.Set(row, RandomLogits(random, vocab_size, 1));
      draft_.Set(row, RandomLogits(random, vocab_size, 1));
    }
    const auto drawn = with_replacement ? DraftKind::kSampled : DraftKind::kSampledRest;
    for (int32_t node = 0; node < kNodes; ++node) {
      parents_.push_back(int32_t(random() % uint64_t(node + 1)) - 1);
      tokens_.push_back(TokenId(random() % uint64_t(vocab_size + 1)));  // at times past the end
      kinds_.push_back(random() % 2 == 0 ? DraftKind::kOneHot : drawn);
    }
  }

  // An order in which parents come first, and siblings keep theirs.
  std::vector<int32_t> OtherOrder(std::mt19937_64& random) const {
    std::vector<int32_t> order;
    std::vector<bool> is_listed(kNodes + 1);  // by place
    is_listed[0] = true;
    while (order.size() < kNodes) {
      const auto node = int32_t(random() % kNodes);
      bool is_next = !is_listed[size_t(node + 1)] && is_listed[size_t(ParentPlace(node))];
      for (int32_t other = 0; other < node; ++other) {
        if (ParentPlace(other) == ParentPlace(node)) is_next &= is_listed[size_t(other + 1)];
      }
      if (!is_next) continue;
      is_listed[size_t(node + 1)] = true;
      order.push_back(node);
    }
    return order;
  }

  // The result, with the numbers that the nodes have here.
  ChainResult Run(VerifyMethod method, const std::vector<int32_t>& nodes,
                  const KeyedCoins& coins) const {
    std::vector<int32_t> places(kNodes + 1);  // where a place of this tree lies in that order
    for (int32_t i = 0; i < kNodes; ++i) places[size_t(nodes[size_t(i)] + 1)] = i + 1;
    std::vector<int32_t> parents;
    std::vector<TokenId> tokens;
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> target_rows = {0};
    std::vector<uint32_t> draft_rows;
    for (const int32_t node : nodes) {
      parents.push_back(places[size_t(ParentPlace(node))] - 1);
      tokens.push_back(tokens_[size_t(node)]);
      kinds.push_back(kinds_[size_t(node)]);
      target_rows.push_back(uint32_t(node + 1));
      draft_rows.push_back(uint32_t(ParentPlace(node)));
    }
    ChainCase tree(method, tokens, kinds);
    tree.task.draft.parents = parents.data();
    tree.task.draft.target_rows = target_rows.data();
    tree.task.draft.draft_rows = draft_rows.data();
    const auto moved_coins = [&](CoinKey key) {
      if (key.node > 0) key.node = uint32_t(nodes[key.node - 1] + 1);
      return coins(key);
    };
    ChainResult result = RunScalar(tree.task, target_.view(), draft_.view(), moved_coins);
    for (int32_t& node : result.path) node = nodes[size_t(node)];
    return result;
  }

 private:
  int32_t ParentPlace(int32_t node) const { return parents_[size_t(node)] + 1; }

  RowMatrix target_;
  RowMatrix draft_;
  std::vector<int32_t> parents_;
  std::vector<TokenId> tokens_;
  std::vector<DraftKind> kinds_;
};

TEST_SUITE("invariance") {
  TEST_CASE("tree on a chain is token, and traversal is block, bit for bit") {
    std::vector<int32_t> parents(kMaxDraft);
    std::iota(parents.begin(), parents.end(), kRoot);
    int num_compared = 0;
    for (const RoundCase::Options& options : AllOptions()) {
      CAPTURE(options.seed);
      RoundCase round(options);
      const std::vector<std::string> chains = ScalarAnswers(round);
      for (int32_t i = 0; i < kBatch; ++i) {
        Task& task = round.task(i);
        if (task.kind != TaskKind::kVerify) continue;
        task.draft.parents = parents.data();
        if (task.method == VerifyMethod::kToken) task.method = VerifyMethod::kTree;
        if (task.method == VerifyMethod::kBlock) task.method = VerifyMethod::kTraversal;
        ++num_compared;
      }
      CHECK(Unnamed(ScalarAnswers(round)) == Unnamed(chains));
    }
    CHECK(num_compared > 200);
  }

  TEST_CASE("random trees: every kind of answer, and one answer from every processor") {
    std::map<std::string, int> seen;
    for (const bool is_lossy : {false, true}) {
      for (const RoundCase::Options& options : AllOptions()) {
        CAPTURE(is_lossy);
        CAPTURE(options.seed);
        RoundCase round(options);
        RoundTrees trees(&round, kBatch, options.seed);
        if (is_lossy) trees.MakeLossy(&round, options.seed);
        if (!is_lossy) seen["places forced to an id that q leaves out"] += trees.num_forced_out();
        const std::vector<std::string> expected = ScalarAnswers(round);
        for (int32_t i = 0; i < kBatch; ++i) {
          const Task& task = round.task(i);
          const TaskOutcome& outcome = round.outcome(i);
          if (task.kind != TaskKind::kVerify) continue;
          const std::string name = task.rng == Rng::kSglang ? "sglang " : "method ";
          const std::string method = name + std::to_string(int(task.method));
          ++seen[method + " status " + std::to_string(int(outcome.status))];
          if (outcome.num_accepted > 1) ++seen[method + " accepts"];
          if (task.draft.draft_weights != nullptr) {
            ++seen[method + " side channel, status " + std::to_string(int(outcome.status))];
          }
          REQUIRE(outcome.status != OutcomeStatus::kBadToken);
        }
        CheckEverywhere(round, round.All(), options, expected);
      }
    }
    for (const auto& [what, count] : seen) MESSAGE(what, ": ", count);
    for (const std::string method :
         {"method 1", "method 2", "method 5", "method 6", "method 7", "method 8", "method 9",
          "method 10", "method 11", "sglang 2"}) {
      CHECK(seen[method + " status 0"] > 20);
      CHECK(seen[method + " accepts"] > 4);
    }
    for (const std::string method : {"method 5", "method 6"}) {
      CHECK(seen[method + " status 1"] > 2);
      CHECK(seen[method + " status 2"] > 0);
      CHECK(seen[method + " side channel, status 0"] > 10);
    }
    CHECK(seen["places forced to an id that q leaves out"] > 10);
    CHECK(seen["method 5 side channel, status 2"] + seen["method 6 side channel, status 2"] > 0);
  }

  // Bug: a task of method traversal, and the children of a place, ran to their end in one piece.
  TEST_CASE("a tree that pauses before every child has the answer of one that does not") {
    int num_pauses[3] = {};  // of tasks without scores: tree, traversal, any other
    for (const RoundCase::Options& options : AllOptions()) {
      CAPTURE(options.seed);
      RoundCase round(options);
      const RoundTrees trees(&round, kBatch, options.seed);
      const std::vector<std::string> expected = ScalarAnswers(round);
      CpuBackend backend(CpuTarget::kBaseline);
      REQUIRE(backend.Prepare({options.vocab_size, kBatch, kMaxDraft, 1}).ok());
      for (int32_t i = 0; i < kBatch; ++i) {
        const Task& task = round.task(i);
        if (task.kind != TaskKind::kVerify || task.drafts_by_slot) continue;
        const bool is_tree = task.method == VerifyMethod::kTree;
        const bool is_traversal = task.method == VerifyMethod::kTraversal;
        RoundBatch batch = round.Some({i});
        PausedTask progress;
        batch.progress = &progress;
        batch.rows_max = 1;
        int32_t most_looks = 0;
        do {
          progress.is_paused = false;
          REQUIRE(backend.Run(batch).ok());
          num_pauses[is_tree ? 0 : is_traversal ? 1 : 2] += progress.is_paused ? 1 : 0;
          most_looks = progress.num_looks;
        } while (progress.is_paused);
        REQUIRE(most_looks <= 2 * task.draft.num_nodes + 2);
        REQUIRE(round.answer(0) == expected[size_t(i)]);
      }
    }
    MESSAGE("pauses: tree ", num_pauses[0], ", traversal ", num_pauses[1]);
    CHECK(num_pauses[0] > 500);
    CHECK(num_pauses[1] > 500);
  }

  TEST_CASE("trees in any order of nodes: one path and one text") {
    std::mt19937_64 random(912);
    size_t num_accepted = 0;
    for (int trial = 0; trial < 300; ++trial) {
      CAPTURE(trial);
      const SmallTree tree(3 + trial % 3, trial % 2 == 0, random);
      const std::vector<int32_t> order = tree.OtherOrder(random);
      for (const VerifyMethod method :
           {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kTree,
            VerifyMethod::kTraversal, VerifyMethod::kTargetOnly}) {
        const KeyedCoins coins(uint64_t(trial) + 1);
        const ChainResult expected = tree.Run(method, InOrder(SmallTree::kNodes), coins);
        num_accepted += expected.path.size();
        REQUIRE(tree.Run(method, order, coins) == expected);
      }
    }
    CHECK(num_accepted > 500);
  }
}

}  // namespace
}  // namespace specd
