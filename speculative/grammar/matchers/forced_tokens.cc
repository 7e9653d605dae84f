#include "speculative/grammar/matchers/forced_tokens.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace specd::grammar {

ForcedTokenFinder::Prefixes ForcedTokenFinder::Follow(std::string_view text) const {
  Prefixes prefixes;
  const std::span<const TokenTrie::Node> nodes = trie_.nodes();
  uint32_t node = 0;
  uint32_t end = nodes.size();
  for (size_t depth = 0; depth < text.size(); ++depth) {
    while (node < end && nodes[node].byte != static_cast<uint8_t>(text[depth])) {
      node = nodes[node].subtree_end;
    }
    if (node >= end) return prefixes;
    const std::span<const TokenId> here = trie_.TokensAt(node);
    if (!here.empty()) prefixes.found.push_back({.node = node, .size_bytes = depth + 1});
    if (depth + 1 == text.size()) {
      const std::span<const TokenId> longer = trie_.TokensUnder(node).subspan(here.size());
      prefixes.longer.assign(longer.begin(), longer.end());
    }
    end = nodes[node].subtree_end;
    ++node;
  }
  return prefixes;
}

std::pair<TokenId, size_t> ForcedTokenFinder::Take(const Prefixes& prefixes,
                                                   GrammarMatcher* matcher) const {
  for (auto prefix = prefixes.found.rbegin(); prefix != prefixes.found.rend(); ++prefix) {
    for (const TokenId id : trie_.TokensAt(prefix->node)) {
      if (matcher->Accept(id)) return {id, prefix->size_bytes};
    }
  }
  return {kNoToken, 0};
}

std::vector<TokenId> ForcedTokenFinder::Find(const GrammarMatcher& matcher, size_t num_max) const {
  std::vector<TokenId> ids;
  const std::unique_ptr<GrammarMatcher> fork = matcher.Fork();
  const std::string text = fork->ForcedText();
  std::string_view rest = text;
  while (ids.size() < num_max && !rest.empty()) {
    const Prefixes prefixes = Follow(rest);
    if (!prefixes.longer.empty()) {
      const MaskRow mask = fork->Mask();
      if (std::any_of(prefixes.longer.begin(), prefixes.longer.end(),
                      [&](TokenId id) { return mask.Allows(id); })) {
        break;
      }
    }
    const auto [id, size_bytes] = Take(prefixes, fork.get());
    if (size_bytes == 0) break;
    ids.push_back(id);
    rest.remove_prefix(size_bytes);
  }
  return ids;
}

}  // namespace specd::grammar
