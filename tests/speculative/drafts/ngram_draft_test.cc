// Drafts from a text against brute force: every occurrence is looked for, and every path counted.
#include "speculative/drafts/ngram_draft.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/core/draft.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

// A path and where the text went that way: ends of its occurrences.
struct Path {
  Ids ids;
  std::vector<size_t> ends;
};

// The order of the header: more occurrences, then shorter, then the latest occurrence.
bool ComesBefore(const Path& a, const Path& b) {
  return std::tuple(b.ends.size(), a.ids.size(), b.ends.back()) <
         std::tuple(a.ends.size(), b.ids.size(), a.ends.back());
}

NgramDraft BruteForce(const Ids& text, const NgramDraftOptions& options) {
  std::vector<size_t> starts;
  for (int32_t n = options.max_ngram; n >= options.min_ngram && starts.empty(); --n) {
    const auto length = static_cast<size_t>(n);
    if (length >= text.size()) continue;
    for (size_t end = length; end < text.size(); ++end) {
      if (std::equal(text.end() - n, text.end(), text.begin() + int64_t(end) - n)) {
        starts.push_back(end);
      }
    }
  }
  // All paths of all occurrences.
  std::map<Ids, Path> paths;
  for (const size_t start : starts) {
    Ids ids;
    for (size_t at = start; at < text.size() && int32_t(ids.size()) < options.max_depth; ++at) {
      ids.push_back(text[at]);
      Path& path = paths[ids];
      path.ids = ids;
      path.ends.push_back(at + 1);
    }
  }
  // Only the `width` best children of a place may be taken, and only behind a node that is.
  const auto is_wide_enough = [&](const Path& path) {
    int32_t better = 0;
    for (const auto& [ids, other] : paths) {
      const bool is_sibling =
          ids.size() == path.ids.size() && std::equal(ids.begin(), ids.end() - 1, path.ids.begin());
      better += is_sibling && ComesBefore(other, path) ? 1 : 0;
    }
    return better < options.width;
  };
  std::vector<Path> taken;
  std::map<Ids, int32_t> node_of = {{{}, kRoot}};
  NgramDraft draft;
  while (int32_t(taken.size()) < options.num_nodes) {
    const Path* best = nullptr;
    for (const auto& [ids, path] : paths) {
      const Ids above(ids.begin(), ids.end() - 1);
      if (node_of.count(ids) != 0 || node_of.count(above) == 0 || !is_wide_enough(path)) continue;
      if (best == nullptr || ComesBefore(path, *best)) best = &path;
    }
    if (best == nullptr) break;
    draft.tokens.push_back(best->ids.back());
    draft.parents.push_back(node_of[Ids(best->ids.begin(), best->ids.end() - 1)]);
    node_of[best->ids] = int32_t(taken.size());
    taken.push_back(*best);
  }
  return draft;
}

TEST_SUITE("unit") {
  TEST_CASE("a draft from the text: what followed the longest n-gram before") {
    // "1 2 3" stands at the end, and before 9 and 8.
    const Ids text = {5, 1, 2, 3, 9, 9, 1, 2, 3, 8, 7, 2, 3, 6, 1, 2, 3};
    const NgramDraft chain = DraftNgrams(text, {.num_nodes = 3});
    CHECK(chain.tokens == Ids{8, 7, 2});  // the latest of two
    CHECK(chain.parents == std::vector<int32_t>{-1, 0, 1});
    const NgramDraft tree = DraftNgrams(text, {.num_nodes = 4, .width = 2});
    CHECK(tree.tokens == Ids{8, 9, 7, 9});
    CHECK(tree.parents == std::vector<int32_t>{-1, -1, 0, 1});
    // Of two ids the end stands thrice.
    CHECK(DraftNgrams(text, {.max_ngram = 2, .num_nodes = 1}).tokens == Ids{6});
    CHECK(DraftNgrams(text, {.min_ngram = 4}).tokens.empty());
    CHECK(DraftNgrams(Ids{}, {}).tokens.empty());
    CHECK(DraftNgrams(Ids{4}, {}).tokens.empty());
    // An occurrence may overlap the end, and a draft ends where the text does.
    CHECK(DraftNgrams(Ids{4, 4, 4, 4}, {.num_nodes = 5}).tokens == Ids{4});
  }

  TEST_CASE("drafts from random texts are those of brute force") {
    std::mt19937_64 random(3);
    int num_trees = 0;
    for (int trial = 0; trial < 3000; ++trial) {
      CAPTURE(trial);
      Ids text(random() % 40);
      for (TokenId& id : text) id = TokenId(random() % (2 + uint64_t(trial % 3)));
      const auto least = static_cast<int32_t>(1 + random() % 3);
      const NgramDraftOptions options{.min_ngram = least,
                                      .max_ngram = least + int32_t(random() % 4),
                                      .num_nodes = int32_t(1 + random() % 12),
                                      .max_depth = int32_t(1 + random() % 5),
                                      .width = int32_t(1 + random() % 3)};
      const NgramDraft draft = DraftNgrams(text, options);
      const NgramDraft expected = BruteForce(text, options);
      REQUIRE(draft.tokens == expected.tokens);
      REQUIRE(draft.parents == expected.parents);
      for (size_t i = 0; i < draft.parents.size(); ++i) {
        num_trees += draft.parents[i] != int32_t(i) - 1 ? 1 : 0;
      }
    }
    CHECK(num_trees > 300);
  }
}

}  // namespace
}  // namespace specd
