#include "speculative/drafts/ngram_draft.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/draft.h"

namespace specd {
namespace {

// The length of the longest common suffix of the text and of its first `end` ids, for each `end`
// below the text's length: Z of the reversed text.
std::vector<int32_t> CommonSuffixes(std::span<const TokenId> text) {
  const auto size = static_cast<int32_t>(text.size());
  const auto at = [&](int32_t i) { return text[static_cast<size_t>(size - 1 - i)]; };
  std::vector<int32_t> z(text.size() + 1);
  int32_t left = 0;
  int32_t right = 0;  // the match that reaches furthest is [left, right)
  for (int32_t i = 1; i < size; ++i) {
    int32_t length = i < right ? std::min(right - i, z[static_cast<size_t>(i - left)]) : 0;
    while (i + length < size && at(length) == at(i + length)) ++length;
    z[static_cast<size_t>(i)] = length;
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

}  // namespace

NgramDraft DraftNgrams(std::span<const TokenId> text, const NgramOptions& options) {
  SPECD_CHECK(options.min_ngram > 0 && options.max_ngram >= options.min_ngram &&
              options.num_nodes > 0 && options.max_depth > 0 && options.width > 0);
  NgramDraft draft;
  const std::vector<int32_t> common = CommonSuffixes(text);
  int32_t longest = 0;
  for (size_t end = 1; end < text.size(); ++end) longest = std::max(longest, common[end]);
  longest = std::min(longest, options.max_ngram);
  if (longest < options.min_ngram) return draft;

  std::priority_queue<Branch, std::vector<Branch>, IsWorse> branches;
  const auto grow = [&](const std::vector<int32_t>& ends, int32_t parent, int32_t depth) {
    std::unordered_map<TokenId, std::vector<int32_t>> by_token;
    for (const int32_t end : ends) {
      const auto next = static_cast<size_t>(end);
      if (next < text.size()) by_token[text[next]].push_back(end + 1);
    }
    std::vector<Branch> children;
    for (auto& [token, next] : by_token) {
      children.push_back(
          {.token = token, .parent = parent, .depth = depth, .ends = std::move(next)});
    }
    std::sort(children.begin(), children.end(),
              [](const Branch& a, const Branch& b) { return IsWorse()(b, a); });
    if (const auto width = static_cast<size_t>(options.width); children.size() > width) {
      children.erase(children.begin() + options.width, children.end());
    }
    for (Branch& child : children) branches.push(std::move(child));
  };

  std::vector<int32_t> ends;
  for (size_t end = 1; end < text.size(); ++end) {
    if (common[end] >= longest) ends.push_back(static_cast<int32_t>(end));
  }
  grow(ends, kRoot, 1);
  while (!branches.empty() && static_cast<int32_t>(draft.tokens.size()) < options.num_nodes) {
    const Branch best = branches.top();
    branches.pop();
    const auto node = static_cast<int32_t>(draft.tokens.size());
    draft.tokens.push_back(best.token);
    draft.parents.push_back(best.parent);
    if (best.depth < options.max_depth) grow(best.ends, node, best.depth + 1);
  }
  return draft;
}

}  // namespace specd
