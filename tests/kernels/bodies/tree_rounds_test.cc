// Random rounds of trees: a chain that is spelled as a tree has the bits of the chain, and every
// processor, batch, number of threads and order of nodes gives one answer.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cuda/run_round.h"
#include "tests/support/round_trees.h"

namespace specd {
namespace {

constexpr int32_t kBatch = 192;
constexpr int32_t kMaxDraft = 8;

std::vector<RoundCase::Options> AllOptions() {
  std::vector<RoundCase::Options> all;
  for (int i = 0; i < 7; ++i) {
    RoundCase::Options options{
        .vocab_size = 300, .batch = kBatch, .max_draft = kMaxDraft, .seed = 900 + uint64_t(i)};
    if (i < 3) options.dtype = static_cast<DType>(i);
    if (i == 1) options.scaled = true;
    if (i == 2) options.vocab_size = 2 * kTileSize + 9;
    if (i == 3) options.target_kind = options.draft_kind = RowKind::kProbabilities;
    if (i == 4) options.target_kind = options.draft_kind = RowKind::kFinalProbabilities;
    if (i == 5) options.vocab_size = 3;
    if (i == 6) options.sampled = true;
    all.push_back(options);
  }
  return all;
}

// The answers without the names of the methods.
std::vector<std::string> Unnamed(std::vector<std::string> answers) {
  for (std::string& answer : answers) answer.erase(0, answer.find(':'));
  return answers;
}

std::vector<std::string> AnswersBy(RoundCase& round, CpuTarget target, int32_t vocab_size,
                                   const std::vector<int32_t>& places, int32_t threads = 1) {
  CpuBackend backend(target);
  REQUIRE(backend.Prepare({vocab_size, kBatch, kMaxDraft, threads}).ok());
  REQUIRE(backend.Run(round.Some(places)).ok());
  std::vector<std::string> answers;
  for (size_t i = 0; i < places.size(); ++i) answers.push_back(round.answer(int32_t(i)));
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
    std::mt19937_64 random(910);
    std::map<std::string, int> seen;
    for (const RoundCase::Options& options : AllOptions()) {
      CAPTURE(options.seed);
      RoundCase round(options);
      const RoundTrees trees(&round, kBatch, options.seed);
      seen["places forced to an id that q leaves out"] += trees.num_forced_out();
      const std::vector<std::string> expected = ScalarAnswers(round);
      for (int32_t i = 0; i < kBatch; ++i) {
        const TaskOutcome& outcome = round.outcome(i);
        const std::string method = "method " + std::to_string(int(round.task(i).method));
        if (round.task(i).kind != TaskKind::kVerify) continue;
        ++seen[method + " status " + std::to_string(int(outcome.status))];
        if (outcome.num_accepted > 1) ++seen[method + " accepts"];
        if (round.task(i).draft.draft_weights != nullptr) {
          ++seen[method + " side channel, status " + std::to_string(int(outcome.status))];
        }
        REQUIRE(outcome.status != OutcomeStatus::kBadToken);
      }
      for (const CpuTarget target : {CpuTarget::kBaseline, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
        if (!CpuTargetIsSupported(target)) continue;
        for (const int32_t threads : {1, 3}) {
          CHECK(AnswersBy(round, target, options.vocab_size, InOrder(kBatch), threads) == expected);
        }
      }
      for (const int32_t num_blocks : {1, 7}) {
        const LaunchResult result = LaunchRound(round, options.max_draft,
                                                {.num_threads = num_blocks == 7 ? 32 : 128,
                                                 .schedule_seed = random(),
                                                 .num_blocks = num_blocks});
        REQUIRE(result.error == "");
        REQUIRE(result.counts_are_back);
        CHECK(result.answers == expected);
      }
    }
    for (const auto& [what, count] : seen) MESSAGE(what, ": ", count);
    for (const int method : {1, 2, 5, 6, 7}) {
      CHECK(seen["method " + std::to_string(method) + " status 0"] > 20);
      CHECK(seen["method " + std::to_string(method) + " accepts"] > 4);
    }
    for (const int method : {5, 6}) {
      CHECK(seen["method " + std::to_string(method) + " status 1"] > 2);
      CHECK(seen["method " + std::to_string(method) + " status 2"] > 0);
      CHECK(seen["method " + std::to_string(method) + " side channel, status 0"] > 10);
    }
    CHECK(seen["places forced to an id that q leaves out"] > 10);
    CHECK(seen["method 5 side channel, status 2"] + seen["method 6 side channel, status 2"] > 0);
  }

  TEST_CASE("lossy methods and SGLang's generator: one answer from every processor") {
    std::mt19937_64 random(913);
    std::map<std::string, int> seen;
    for (const RoundCase::Options& options : AllOptions()) {
      CAPTURE(options.seed);
      RoundCase round(options);
      RoundTrees trees(&round, kBatch, options.seed);
      trees.MakeLossy(&round, options.seed);
      const std::vector<std::string> expected = ScalarAnswers(round);
      for (int32_t i = 0; i < kBatch; ++i) {
        const TaskOutcome& outcome = round.outcome(i);
        if (round.task(i).kind != TaskKind::kVerify) continue;
        const std::string method = "method " + std::to_string(int(round.task(i).method));
        ++seen[method + (round.task(i).rng == Rng::kSglang ? " sglang" : "")];
        if (outcome.num_accepted > 0) ++seen[method + " accepts"];
        REQUIRE(outcome.status != OutcomeStatus::kBadToken);
      }
      for (const CpuTarget target : {CpuTarget::kBaseline, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
        if (!CpuTargetIsSupported(target)) continue;
        for (const int32_t threads : {1, 3}) {
          CHECK(AnswersBy(round, target, options.vocab_size, InOrder(kBatch), threads) == expected);
        }
      }
      const LaunchResult result =
          LaunchRound(round, options.max_draft,
                      {.num_threads = 128, .schedule_seed = random(), .num_blocks = 3});
      REQUIRE(result.error == "");
      REQUIRE(result.counts_are_back);
      CHECK(result.answers == expected);
    }
    for (const auto& [what, count] : seen) MESSAGE(what, ": ", count);
    for (const int method : {8, 9, 10, 11}) {
      CHECK(seen["method " + std::to_string(method)] > 50);
      CHECK(seen["method " + std::to_string(method) + " accepts"] > 10);
    }
    CHECK(seen["method 2 sglang"] > 50);
    CHECK(seen["method 2 accepts"] > 10);
  }

  TEST_CASE("a tree alone is the tree at any place of a batch") {
    std::mt19937_64 random(911);
    for (const RoundCase::Options& options : AllOptions()) {
      RoundCase round(options);
      const RoundTrees trees(&round, kBatch, options.seed);
      const int32_t vocab_size = options.vocab_size;
      const std::vector<std::string> together =
          AnswersBy(round, CpuTarget::kBaseline, vocab_size, InOrder(kBatch));
      std::vector<int32_t> shuffled = InOrder(kBatch);
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      const std::vector<std::string> permuted =
          AnswersBy(round, CpuTarget::kBaseline, vocab_size, shuffled);
      for (int32_t i = 0; i < kBatch; ++i) {
        REQUIRE(permuted[size_t(i)] == together[size_t(shuffled[size_t(i)])]);
        REQUIRE(AnswersBy(round, CpuTarget::kBaseline, vocab_size, {i})[0] == together[size_t(i)]);
      }
    }
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
