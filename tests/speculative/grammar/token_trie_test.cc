#include "speculative/grammar/masks/token_trie.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

using Tokens = std::map<std::string, std::vector<TokenId>>;  // ids in ascending order

std::vector<TokenId> Ids(std::span<const TokenId> ids) { return {ids.begin(), ids.end()}; }

// Compares the whole tree with its definition: one node for each prefix of a token, in the order
// of the prefixes.
void CheckTrie(const TokenTrie& trie, const Tokens& tokens) {
  std::set<std::string> prefixes;
  std::vector<TokenId> all;
  size_t depth_max = 0;
  for (const auto& [bytes, ids] : tokens) {
    for (size_t size = 1; size <= bytes.size(); ++size) prefixes.insert(bytes.substr(0, size));
    all.insert(all.end(), ids.begin(), ids.end());
    depth_max = std::max(depth_max, bytes.size());
  }
  REQUIRE(trie.nodes().size() == prefixes.size());
  CHECK(Ids(trie.tokens()) == all);
  CHECK(trie.depth_max() == depth_max);
  uint32_t node = 0;
  for (auto prefix = prefixes.begin(); prefix != prefixes.end(); ++prefix, ++node) {
    const TokenTrie::Node& at = trie.nodes()[node];
    CHECK(at.depth + size_t{1} == prefix->size());
    CHECK(at.byte == static_cast<uint8_t>(prefix->back()));
    uint32_t end = node;
    for (auto below = prefix; below != prefixes.end() && below->starts_with(*prefix); ++below)
      ++end;
    CHECK(at.subtree_end == end);
    std::vector<TokenId> under;
    for (auto below = tokens.lower_bound(*prefix);
         below != tokens.end() && below->first.starts_with(*prefix); ++below) {
      under.insert(under.end(), below->second.begin(), below->second.end());
    }
    CHECK(Ids(trie.TokensUnder(node)) == under);
    const auto found = tokens.find(*prefix);
    CHECK(at.has_tokens == (found != tokens.end()));
    CHECK(Ids(trie.TokensAt(node)) ==
          (found == tokens.end() ? std::vector<TokenId>() : found->second));
  }
}

// Compares the branches with the children that their nodes have.
void CheckBranches(const TokenTrie& trie, std::mt19937* random) {
  constexpr uint32_t kRoot = ~uint32_t{0};
  std::map<uint32_t, std::vector<uint32_t>> children;  // by node
  std::vector<uint32_t> path;
  for (uint32_t node = 0; node < trie.nodes().size(); ++node) {
    path.resize(trie.nodes()[node].depth);
    children[path.empty() ? kRoot : path.back()].push_back(node);
    path.push_back(node);
  }
  std::vector<uint32_t> wide = {kRoot};
  for (uint32_t node = 0; node < trie.nodes().size(); ++node) {
    CHECK(trie.nodes()[node].is_wide == (children[node].size() >= 8));
    if (!trie.nodes()[node].is_wide) continue;
    CHECK(trie.BranchOf(node) == wide.size());
    wide.push_back(node);
  }
  REQUIRE(trie.branches().size() == wide.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    const TokenTrie::Branch& branch = trie.branches()[i];
    ByteSet some;
    for (int byte = 0; byte < 256; ++byte) {
      if ((*random)() % 2 == 0) some.Add(static_cast<uint8_t>(byte));
    }
    for (uint32_t from = 0; from <= 256; ++from) {
      uint32_t expected = wide[i] == kRoot ? static_cast<uint32_t>(trie.nodes().size())
                                           : trie.nodes()[wide[i]].subtree_end;
      for (const uint32_t child : children[wide[i]]) {
        const uint8_t byte = trie.nodes()[child].byte;
        if (byte < from || !some.Has(byte)) continue;
        expected = child;
        break;
      }
      REQUIRE(trie.NextChild(branch, some, from) == expected);
    }
  }
}

struct RandomVocabulary {
  Vocabulary vocabulary;
  Tokens tokens;  // those of a trie with the width `vocab_size`
};

RandomVocabulary MakeVocabulary(int32_t vocab_size, std::mt19937* random) {
  RandomVocabulary made;
  Vocabulary::Builder builder;
  const auto num_ids = static_cast<TokenId>((*random)() % 200);
  for (TokenId id = 0; id < num_ids; ++id) {
    if ((*random)() % 8 == 0) continue;  // a hole
    std::string bytes;
    for (auto i = (*random)() % 12; i > 0; --i) {
      constexpr char kBytes[] = {'\0', 'a', 'b', '\x7F', '\x80', '\xFF'};
      bytes.push_back(kBytes[(*random)() % ((*random)() % 6 + 1)]);
    }
    const bool is_special = (*random)() % 8 == 0;
    builder.Set(id, bytes, {.added = is_special, .special = is_special});
    if (!is_special && !bytes.empty() && id < vocab_size) made.tokens[bytes].push_back(id);
  }
  made.vocabulary = std::move(builder).Build();
  return made;
}

TEST_SUITE("unit") {
  TEST_CASE("a trie of random tokens has a node for each prefix") {
    std::mt19937 random(5);
    for (int trial = 0; trial < GridSize({.full = 300, .sanitized = 40}); ++trial) {
      const auto vocab_size = static_cast<int32_t>(1 + random() % 300);
      const RandomVocabulary made = MakeVocabulary(vocab_size, &random);
      const TokenTrie trie = TokenTrie::Build(made.vocabulary, vocab_size);
      CheckTrie(trie, made.tokens);
      CheckBranches(trie, &random);
      CHECK(trie.vocab_size() == vocab_size);

      // The parts 0..3 without the last one.
      std::vector<Tokens> expected(3);
      for (const auto& [bytes, ids] : made.tokens) {
        for (const TokenId id : ids) {
          if (id % 4 < 3) expected[static_cast<size_t>(id % 4)][bytes].push_back(id);
        }
      }
      const std::vector<TokenTrie> parts =
          trie.Split(3, [](TokenId id) { return static_cast<size_t>(id % 4); });
      REQUIRE(parts.size() == 3);
      for (size_t part = 0; part < 3; ++part) {
        CheckTrie(parts[part], expected[part]);
        CHECK(parts[part].vocab_size() == vocab_size);
      }
    }
  }

  TEST_CASE("every byte can be a token, and one token in several ids") {
    Vocabulary::Builder builder;
    Tokens tokens;
    for (TokenId id = 0; id < 512; ++id) {
      const std::string bytes(1, static_cast<char>(id % 256));
      builder.Set(id, bytes, {});
    }
    // std::string compares bytes without sign, as the trie has to.
    for (TokenId id = 0; id < 512; ++id) {
      tokens[std::string(1, static_cast<char>(id % 256))].push_back(id);
    }
    const TokenTrie trie = TokenTrie::Build(std::move(builder).Build(), 512);
    CheckTrie(trie, tokens);
    std::mt19937 random(3);
    CheckBranches(trie, &random);
    CHECK(Ids(trie.TokensAt(200)) == std::vector<TokenId>{200, 456});
  }

  TEST_CASE("nodes with many children have branches") {
    std::mt19937 random(4);
    Vocabulary::Builder builder;
    for (TokenId id = 0; id < 3000; ++id) {
      std::string bytes;
      for (auto i = 1 + random() % 3; i > 0; --i) {
        bytes.push_back(static_cast<char>(random() % (i == 2 ? 256 : 12) * 21));
      }
      builder.Set(id, bytes, {});
    }
    const TokenTrie trie = TokenTrie::Build(std::move(builder).Build(), 3000);
    CHECK(trie.branches().size() > 10);
    CheckBranches(trie, &random);
  }

  TEST_CASE("the longest token that a vocabulary can have is one path") {
    const std::string bytes(Vocabulary::kTokenSizeBytesMax, 'x');
    Vocabulary::Builder builder;
    builder.Set(3, bytes, {});
    const TokenTrie trie = TokenTrie::Build(std::move(builder).Build(), 4);
    REQUIRE(trie.nodes().size() == bytes.size());
    CHECK(trie.nodes().back().depth == bytes.size() - 1);
    CHECK(trie.nodes()[0].subtree_end == bytes.size());
    CHECK(Ids(trie.TokensUnder(0)) == std::vector<TokenId>{3});
    CHECK(Ids(trie.TokensAt(static_cast<uint32_t>(bytes.size()) - 1)) == std::vector<TokenId>{3});
    CHECK(trie.TokensAt(0).empty());
  }

  TEST_CASE("a vocabulary without text makes an empty trie") {
    Vocabulary::Builder builder;
    builder.Set(0, "<eos>", {.added = true, .special = true});
    builder.Set(1, "", {});
    builder.Set(2, "past the logits", {});
    const TokenTrie trie = TokenTrie::Build(std::move(builder).Build(), 2);
    CHECK(trie.nodes().empty());
    CHECK(trie.tokens().empty());
    CHECK(trie.Split(1, [](TokenId) { return 0; })[0].nodes().empty());
    CHECK(TokenTrie().nodes().empty());
  }
}

}  // namespace
}  // namespace specd::grammar
