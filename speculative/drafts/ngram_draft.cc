#include "speculative/drafts/ngram_draft.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/draft.h"

namespace specd {
namespace {

// The length of the longest common suffix of the text and of its first `end` ids, for each `end`
// below the text's length: Z of the reversed text.
std::vector<int32_t> CommonSuffixes(std::span<const TokenId> text) {
  const int32_t size = text.size();
  const auto at = [&](int32_t i) { return text[size - 1 - i]; };
  std::vector<int32_t> z(text.size() + 1);
  int32_t left = 0;
  int32_t right = 0;  // the match that reaches furthest is [left, right)
  for (int32_t i = 1; i < size; ++i) {
    int32_t length = i < right ? std::min(right - i, z[i - left]) : 0;
    while (i + length < size && at(length) == at(i + length)) ++length;
    z[i] = length;
    if (i + length > right) left = i, right = i + length;
  }
  // Z at i belongs to the prefix that ends before the last i ids.
  std::reverse(z.begin(), z.end());
  return z;
}

// A possible node: `token` after the node `parent`, at the places where the text went that way.
struct Branch {
  TokenId token = kNoToken;
  int32_t parent = kRoot;
  int32_t depth = 1;
  std::vector<int32_t> ends;  // ascending; text[end] is the token that would come next
};

// More occurrences first, then fewer tokens before it, then the latest.
struct IsWorse {
  bool operator()(const Branch& a, const Branch& b) const {
    if (a.ends.size() != b.ends.size()) return a.ends.size() < b.ends.size();
    if (a.depth != b.depth) return a.depth > b.depth;
    return a.ends.back() < b.ends.back();
  }
};

// The ends with one next token.
using Run = std::span<const int32_t>;

// The runs of `ends`, which it sorts by the next token; of them the `width` best ones.
std::vector<Run> BestRuns(std::span<const TokenId> text, size_t width, std::vector<int32_t>* ends) {
  const auto next = [&](int32_t end) { return text[end]; };
  if (!ends->empty() && static_cast<size_t>(ends->back()) == text.size()) ends->pop_back();
  std::sort(ends->begin(), ends->end(),
            [&](int32_t a, int32_t b) { return next(a) != next(b) ? next(a) < next(b) : a < b; });
  const auto is_better = [](const Run& a, const Run& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.back() > b.back();
  };
  std::vector<Run> best;  // a heap with the worst at its front
  for (auto begin = ends->begin(); begin != ends->end();) {
    const TokenId token = next(*begin);
    const auto end =
        std::find_if(begin, ends->end(), [&](int32_t each) { return next(each) != token; });
    best.emplace_back(begin, end);
    std::push_heap(best.begin(), best.end(), is_better);
    if (best.size() > width) {
      std::pop_heap(best.begin(), best.end(), is_better);
      best.pop_back();
    }
    begin = end;
  }
  return best;
}

}  // namespace

NgramDraft DraftNgrams(std::span<const TokenId> text, const NgramDraftOptions& options) {
  SPECD_CHECK(options.min_ngram > 0 && options.max_ngram >= options.min_ngram &&
              options.num_nodes > 0 && options.max_depth > 0 && options.width > 0);
  NgramDraft draft;
  std::vector<int32_t> ends;  // of the occurrences
  {
    const std::vector<int32_t> common = CommonSuffixes(text);
    int32_t longest = 0;
    for (size_t end = 1; end < text.size(); ++end) longest = std::max(longest, common[end]);
    longest = std::min(longest, options.max_ngram);
    if (longest < options.min_ngram) return draft;
    for (size_t end = 1; end < text.size(); ++end) {
      if (common[end] >= longest) ends.push_back(static_cast<int32_t>(end));
    }
  }

  std::vector<Branch> branches;  // a heap
  const auto grow = [&](std::vector<int32_t> from, int32_t parent, int32_t depth) {
    for (const Run& run : BestRuns(text, static_cast<size_t>(options.width), &from)) {
      Branch child = {.token = text[run[0]],
                      .parent = parent,
                      .depth = depth,
                      .ends = {run.begin(), run.end()}};
      for (int32_t& end : child.ends) ++end;
      branches.push_back(std::move(child));
      std::push_heap(branches.begin(), branches.end(), IsWorse());
    }
  };
  grow(std::move(ends), kRoot, 1);
  while (!branches.empty() && static_cast<int32_t>(draft.tokens.size()) < options.num_nodes) {
    std::pop_heap(branches.begin(), branches.end(), IsWorse());
    Branch best = std::move(branches.back());
    branches.pop_back();
    const int32_t node = draft.tokens.size();
    draft.tokens.push_back(best.token);
    draft.parents.push_back(best.parent);
    if (best.depth < options.max_depth) grow(std::move(best.ends), node, best.depth + 1);
  }
  return draft;
}

}  // namespace specd
