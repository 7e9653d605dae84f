// Grown trees against brute force over all subsets, and against the arrays of SGLang's build_tree.
#include "speculative/drafts/tree_growth.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/core/draft.h"

namespace specd {
namespace {

using Ints = std::vector<int32_t>;

struct Candidates {
  Ints parents;
  std::vector<float> scores;
};

Candidates RandomCandidates(std::mt19937_64& random, int32_t count) {
  Candidates made;
  for (int32_t i = 0; i < count; ++i) {
    const auto parent = static_cast<int32_t>(random() % uint64_t(i + 1)) - 1;
    // Few values, so that scores are often equal.
    const float own = static_cast<float>(1 + random() % 4) / 4;
    made.parents.push_back(parent);
    made.scores.push_back(parent == kRoot ? own : own * made.scores[size_t(parent)]);
  }
  return made;
}

int32_t DepthOf(const Ints& parents, int32_t node) {
  int32_t depth = 1;
  while ((node = parents[size_t(node)]) != kRoot) ++depth;
  return depth;
}

// The subset of num_nodes candidates with the largest sum that holds the parent of each; of equal
// sums the one whose members are first.
Ints BestSubset(const Candidates& from, int32_t num_nodes, int32_t max_depth) {
  const auto count = static_cast<int32_t>(from.parents.size());
  double best_sum = -1;
  Ints best;
  for (uint32_t set = 0; set < uint32_t{1} << count; ++set) {
    Ints members;
    double sum = 0;
    bool is_tree = true;
    for (int32_t i = 0; i < count; ++i) {
      if ((set >> i & 1u) == 0) continue;
      members.push_back(i);
      sum += double(from.scores[size_t(i)]);
      const int32_t parent = from.parents[size_t(i)];
      is_tree &= parent == kRoot || (set >> parent & 1u) != 0;
      is_tree &= DepthOf(from.parents, i) <= max_depth;
    }
    if (!is_tree || int32_t(members.size()) > num_nodes) continue;
    if (sum > best_sum || (sum == best_sum && members.size() == best.size() && members < best)) {
      best_sum = sum;
      best = members;
    }
  }
  return best;
}

GrownTree Grown(const Candidates& from, int32_t num_nodes, int32_t max_depth) {
  const auto tree =
      GrowTree({.parents = from.parents, .scores = from.scores}, num_nodes, max_depth);
  REQUIRE(tree.ok());
  return *tree;
}

TEST_SUITE("unit") {
  TEST_CASE("a grown tree is the best of all trees of that size") {
    std::mt19937_64 random(1);
    for (int trial = 0; trial < 60; ++trial) {
      const Candidates from = RandomCandidates(random, 1 + trial % 11);
      for (const int32_t num_nodes : {1, 3, 6, 20}) {
        for (const int32_t max_depth : {1, 2, 50}) {
          CAPTURE(trial);
          CAPTURE(num_nodes);
          const GrownTree tree = Grown(from, num_nodes, max_depth);
          REQUIRE(tree.candidates == BestSubset(from, num_nodes, max_depth));
          for (size_t i = 0; i < tree.parents.size(); ++i) {
            const int32_t parent = tree.parents[i];
            const int32_t expected = from.parents[size_t(tree.candidates[i])];
            REQUIRE(parent < int32_t(i));
            REQUIRE((parent == kRoot ? kRoot : tree.candidates[size_t(parent)]) == expected);
          }
        }
      }
    }
  }

  // SGLang's arrays: topk candidates of the first step, then topk * topk of each later one, whose
  // topk parents are the best of the step before. The parent of a selected index s is the root if
  // s / topk is 0, else parent_list[s / topk] is the flat index of its parent, and its node is the
  // place of that index in the selection.
  TEST_CASE("a grown tree is the tree of SGLang's build_tree") {
    std::mt19937_64 random(2);
    for (int trial = 0; trial < 200; ++trial) {
      CAPTURE(trial);
      const int32_t topk = 1 + trial % 4;
      const int32_t steps = 1 + trial / 4 % 4;
      const auto probability = [&] { return static_cast<float>(1 + random() % 1000) / 1001; };
      Candidates flat;
      Ints parent_list = {-1};
      Ints frontier;
      for (int32_t i = 0; i < topk; ++i) {
        flat.parents.push_back(kRoot);
        flat.scores.push_back(probability());
        frontier.push_back(i);
        parent_list.push_back(i);
      }
      for (int32_t step = 1; step < steps; ++step) {
        const auto first = static_cast<int32_t>(flat.scores.size());
        Candidates level;
        for (const int32_t parent : frontier) {
          for (int32_t child = 0; child < topk; ++child) {
            flat.parents.push_back(parent);
            flat.scores.push_back(flat.scores[size_t(parent)] * probability());
            level.parents.push_back(kRoot);
            level.scores.push_back(flat.scores.back());
          }
        }
        // The candidates that are expanded next are the best of the step.
        frontier.clear();
        for (const int32_t best : Grown(level, topk, 1).candidates)
          frontier.push_back(first + best);
        parent_list.insert(parent_list.end(), frontier.begin(), frontier.end());
      }
      const int32_t num_nodes = 1 + int32_t(random() % flat.scores.size());
      const GrownTree tree = Grown(flat, num_nodes, 50);

      Ints selected(flat.scores.size());
      for (size_t i = 0; i < selected.size(); ++i) selected[i] = int32_t(i);
      std::stable_sort(selected.begin(), selected.end(), [&](int32_t a, int32_t b) {
        return flat.scores[size_t(a)] > flat.scores[size_t(b)];
      });
      selected.resize(size_t(num_nodes));
      std::sort(selected.begin(), selected.end());
      REQUIRE(tree.candidates == selected);
      for (size_t i = 0; i < selected.size(); ++i) {
        const int32_t row = selected[i] / topk;
        int32_t parent = kRoot;
        if (row > 0) {
          const auto found = std::find(selected.begin(), selected.end(), parent_list[size_t(row)]);
          REQUIRE(found != selected.end());
          parent = static_cast<int32_t>(found - selected.begin());
        }
        REQUIRE(tree.parents[i] == parent);
      }
    }
  }

  TEST_CASE("candidates that are no tree, or whose scores are not cumulative, are refused") {
    const auto text = [](const Ints& parents, const std::vector<float>& scores) {
      const auto tree = GrowTree({.parents = parents, .scores = scores}, 4, 9);
      return std::string(tree.status().message());
    };
    CHECK(text({0}, {.5f}).find("parents[0] = 0") == 0);
    CHECK(text({-1, -2}, {.5f, .5f}).find("parents[1] = -2") == 0);
    CHECK(text({-1, 0}, {.5f, .75f}).find("scores[1] = 0.75 is above 0.5") == 0);
    CHECK(text({-1}, {std::numeric_limits<float>::quiet_NaN()}).find("scores[0] is NaN") == 0);
    CHECK(text({}, {}).empty());
    CHECK(text({-1, 0, 0}, {-1, -1, -INFINITY}).empty());  // logarithms
  }

  TEST_CASE("a static tree has its widths, level by level") {
    const std::vector<uint32_t> widths = {2, 2, 1};
    CHECK(*StaticTree(widths, 10) == Ints{-1, -1, 0, 0, 1, 1, 2, 3, 4, 5});
    CHECK(!StaticTree(widths, 9).ok());
    CHECK(StaticTree({}, 0)->empty());
    CHECK(*StaticTree(std::vector<uint32_t>{1, 1, 1}, 64) == Ints{-1, 0, 1});
    CHECK(*StaticTree(std::vector<uint32_t>{3, 0, 7}, 64) == Ints{-1, -1, -1});
    CHECK(!StaticTree(std::vector<uint32_t>{8, 8, UINT32_MAX}, 64).ok());
  }
}

}  // namespace
}  // namespace specd
