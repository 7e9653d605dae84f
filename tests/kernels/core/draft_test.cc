// The tree functions of a draft, against reachability in a graph of places.
#include "kernels/core/draft.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace specd {
namespace {

// The places of a draft as a graph: an edge leads from the place at which a node is proposed to the
// place after the node. Warshall's algorithm finds the places that are reached from each place.
class Places {
 public:
  explicit Places(const std::vector<int32_t>& parents) : num_places_(int(parents.size()) + 1) {
    reached_.assign(size_t(num_places_), std::vector<char>(size_t(num_places_), 0));
    for (int node = 0; node + 1 < num_places_; ++node) {
      reached_[size_t(parents[size_t(node)] + 1)][size_t(node + 1)] = 1;
    }
    for (size_t via = 0; via < reached_.size(); ++via) {
      for (std::vector<char>& row : reached_) {
        if (row[via] == 0) continue;
        for (size_t to = 0; to < row.size(); ++to) row[to] |= reached_[via][to];
      }
    }
  }

  int num_places() const { return num_places_; }

  std::vector<int> Behind(int place) const {
    std::vector<int> nodes;
    for (int node = 0; node + 1 < num_places_; ++node) {
      if (Reaches(place, node + 1)) nodes.push_back(node);
    }
    return nodes;
  }
  std::vector<int> Above(int place) const {
    std::vector<int> nodes;
    for (int node = 0; node + 1 < num_places_; ++node) {
      if (node + 1 == place || Reaches(node + 1, place)) nodes.push_back(node);
    }
    return nodes;
  }

 private:
  bool Reaches(int from, int to) const { return reached_[size_t(from)][size_t(to)] != 0; }

  int num_places_;
  std::vector<std::vector<char>> reached_;
};

std::vector<int> NodesOf(NodeSet set) {
  std::vector<int> nodes;
  for (int node = 0; node < kNodesMax; ++node) {
    if (Holds(set, node)) nodes.push_back(node);
  }
  return nodes;
}

Draft DraftOf(const std::vector<int32_t>& parents) {
  return {.num_nodes = int32_t(parents.size()), .parents = parents.data()};
}

void CheckTree(const std::vector<int32_t>& parents) {
  const Draft draft = DraftOf(parents);
  const Places places(parents);
  for (int place = 0; place < places.num_places(); ++place) {
    CAPTURE(place);
    const NodeSet above = AncestorsOf(draft, place);
    REQUIRE(NodesOf(above) == places.Above(place));
    REQUIRE(NumNodes(above) == int(places.Above(place).size()));
    REQUIRE(DepthOf(draft, place) == int(places.Above(place).size()));
    REQUIRE(NodesOf(NodesBehind(draft, place)) == places.Behind(place));
  }
  for (int node = 0; node < draft.num_nodes; ++node) {
    CAPTURE(node);
    REQUIRE(ParentOf(draft, node) == parents[size_t(node)]);
    REQUIRE(PlaceOf(draft, node) == parents[size_t(node)] + 1);
    REQUIRE(NodeBefore(PlaceAfter(node)) == node);
  }
}

std::vector<int32_t> ChainParents(int num_nodes) {
  std::vector<int32_t> parents;
  for (int node = 0; node < num_nodes; ++node) parents.push_back(node - 1);
  return parents;
}

TEST_SUITE("unit") {
  TEST_CASE("a tree by hand: every function at every place") {
    // The tree of kernels/core/draft.h: nodes 0 and 2 follow the root, node 1 follows node 0.
    const std::vector<int32_t> parents = {kRoot, 0, kRoot};
    const Draft draft = DraftOf(parents);
    CHECK(NodesOf(NodesBehind(draft, 0)) == std::vector<int>{0, 1, 2});
    CHECK(NodesOf(NodesBehind(draft, 1)) == std::vector<int>{1});
    CHECK(NodesOf(NodesBehind(draft, 2)).empty());
    CHECK(NodesOf(NodesBehind(draft, 3)).empty());
    CHECK(NodesOf(AncestorsOf(draft, 0)).empty());
    CHECK(NodesOf(AncestorsOf(draft, 2)) == std::vector<int>{0, 1});
    CHECK(NodesOf(AncestorsOf(draft, 3)) == std::vector<int>{2});
    CHECK(DepthOf(draft, 0) == 0);
    CHECK(DepthOf(draft, 2) == 2);
    CHECK(DepthOf(draft, 3) == 1);
    CHECK(PlaceOf(draft, 0) == 0);
    CHECK(PlaceOf(draft, 1) == 1);
    CHECK(PlaceOf(draft, 2) == 0);
  }

  TEST_CASE("random trees of 1 to 64 nodes agree with reachability") {
    std::mt19937_64 random(71);
    for (int repeat = 0; repeat < 300; ++repeat) {
      CAPTURE(repeat);
      const int num_nodes = repeat < 60 ? kNodesMax : 1 + int(random() % kNodesMax);
      // The distance to the parent at most: deep trees, bushy trees, and stars.
      const int reach = 1 + int(random() % (repeat % 3 == 0 ? 3 : kNodesMax));
      std::vector<int32_t> parents;
      for (int node = 0; node < num_nodes; ++node) {
        parents.push_back(std::max(node - 1 - int(random() % uint64_t(reach)), int(kRoot)));
      }
      CheckTree(parents);
    }
  }

  TEST_CASE("a chain without parents is the tree in which each node follows the node before") {
    for (const int num_nodes : {0, 1, 2, 31, 63, kNodesMax}) {
      CAPTURE(num_nodes);
      const std::vector<int32_t> parents = ChainParents(num_nodes);
      const Places places(parents);
      const Draft chain{.num_nodes = num_nodes};
      for (int place = 0; place <= num_nodes; ++place) {
        CAPTURE(place);
        REQUIRE(NodesOf(AncestorsOf(chain, place)) == places.Above(place));
        REQUIRE(DepthOf(chain, place) == int(places.Above(place).size()));
        // A chain's set may hold further bits, which are no nodes of the draft.
        std::vector<int> behind = NodesOf(NodesBehind(chain, place));
        std::erase_if(behind, [&](int node) { return node >= num_nodes; });
        REQUIRE(behind == places.Behind(place));
      }
      for (int node = 0; node < num_nodes; ++node) {
        REQUIRE(ParentOf(chain, node) == node - 1);
        REQUIRE(PlaceOf(chain, node) == node);
      }
    }
    // No node follows the last place of the longest chain, and no bit is left.
    CHECK(NodesBehind(Draft{.num_nodes = kNodesMax}, kNodesMax) == 0);
  }

  TEST_CASE("a set of nodes counts and holds its first node and its last") {
    CHECK(NumNodes(0) == 0);
    CHECK(NumNodes(~NodeSet{0}) == kNodesMax);
    const NodeSet ends = NodeSet{1} << 63 | 1;
    CHECK(NumNodes(ends) == 2);
    CHECK(NodesOf(ends) == std::vector<int>{0, 63});
  }
}

}  // namespace
}  // namespace specd
