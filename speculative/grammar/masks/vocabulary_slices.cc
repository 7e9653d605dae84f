#include "speculative/grammar/masks/vocabulary_slices.h"

#include <array>
#include <bit>
#include <span>
#include <utility>

#include "fmt/format.h"
#include "kernels/core/check.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {
namespace {

constexpr std::array<CharRange, 1> kLower = {{{'a', 'z'}}};
constexpr std::array<CharRange, 2> kLetters = {{{'A', 'Z'}, {'a', 'z'}}};
constexpr std::array<CharRange, 1> kSpace = {{{' ', ' '}}};
constexpr std::array<CharRange, 1> kDigits = {{{'0', '9'}}};
constexpr std::array<CharRange, 5> kNameCharacters = {
    {{'-', '-'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}};
// The characters that a JSON string holds unescaped: no control character, quote or backslash.
constexpr std::array<CharRange, 3> kStringAscii = {{{' ', '!'}, {'#', '['}, {']', '~'}}};
constexpr std::array<CharRange, 3> kStringCharacters = {{{' ', '!'}, {'#', '['}, {']', kCharMax}}};
constexpr std::array<CharRange, 1> kLineCharacters = {{{' ', kCharMax}}};

// Texts of `other` characters, after one of `first`.
struct Definition {
  const char* name;
  std::span<const CharRange> first;
  std::span<const CharRange> other;
};

// The smaller language first: a grammar that refuses a family may allow those before it.
constexpr std::array<Definition, 8> kDefinitions = {{
    {.name = "lower-case letters", .first = kLower, .other = kLower},
    {.name = "letters", .first = kLetters, .other = kLetters},
    {.name = "space and letters", .first = kSpace, .other = kLetters},
    {.name = "digits", .first = kDigits, .other = kDigits},
    {.name = "letters, digits, _ and -", .first = kNameCharacters, .other = kNameCharacters},
    {.name = "ASCII of a string", .first = kStringAscii, .other = kStringAscii},
    {.name = "characters of a string", .first = kStringCharacters, .other = kStringCharacters},
    {.name = "characters of a line", .first = kLineCharacters, .other = kLineCharacters},
}};
constexpr size_t kNumFamilies = kDefinitions.size();

// By family: the families whose texts are texts of it too, itself included.
constexpr std::array<std::array<bool, kNumFamilies>, kNumFamilies> kContains = {{
    {true, false, false, false, false, false, false, false},
    {true, true, false, false, false, false, false, false},
    {false, false, true, false, false, false, false, false},
    {false, false, false, true, false, false, false, false},
    {true, true, false, true, true, false, false, false},
    {true, true, true, true, true, true, false, false},
    {true, true, true, true, true, true, true, false},
    {true, true, true, true, true, true, true, true},
}};

// Where a grammar counts, short tokens may be decided and longer ones walked.
struct Lengths {
  uint32_t min;
  uint32_t max;
};
constexpr std::array<Lengths, 3> kLengths = {
    {{1, 8}, {9, TokenFamily::kCharactersMax}, {TokenFamily::kCharactersMax + 1, kUnbounded}}};

ByteDfa OneCharacter(std::span<const CharRange> characters) {
  CharSet set;
  for (const CharRange& range : characters) set.Add(range.first, range.last);
  GrammarRules rules;
  absl::StatusOr<ByteDfa> dfa = Determinize(rules, rules.Chars(set));
  SPECD_CHECK(dfa.ok());
  return *std::move(dfa);
}

ByteSet FirstBytes(const ByteDfa& dfa) {
  ByteSet bytes;
  for (const ByteDfa::Edge& edge : dfa.states[0].edges) {
    bytes = bytes | ByteSet::Range(edge.first, edge.last);
  }
  return bytes;
}

TokenFamily MakeFamily(const Definition& definition) {
  TokenFamily family = {.name = definition.name,
                        .first = OneCharacter(definition.first),
                        .other = OneCharacter(definition.other),
                        .first_bytes = {},
                        .other_bytes = {}};
  family.first_bytes = FirstBytes(family.first);
  family.other_bytes = FirstBytes(family.other);
  return family;
}

// Where a token belongs.
struct Place {
  size_t family = VocabularySlice::kNoFamily;
  uint32_t num_characters = 0;  // with one that is not complete
};

// Gives the tokens that begin a text of the family, and have no place yet, their place.
void PlaceTokens(const TokenTrie& trie, const TokenFamily& family, size_t number,
                 std::vector<Place>* places) {
  struct At {
    const ByteDfa* dfa = nullptr;
    uint32_t state = 0;
    uint32_t num_characters = 0;  // those that have begun
  };
  std::vector<At> ats(trie.depth_max() + 1, {.dfa = &family.first});
  for (uint32_t node = 0; node < trie.nodes().size();) {
    const TokenTrie::Node& here = trie.nodes()[node];
    At at = ats[here.depth];
    at.num_characters += at.state == 0 ? 1 : 0;
    at.state = at.dfa->Step(at.state, here.byte);
    if (at.state == ByteDfa::kDead) {
      node = here.subtree_end;
      continue;
    }
    for (const TokenId id : trie.TokensAt(node)) {
      Place& place = (*places)[id];
      if (place.family != VocabularySlice::kNoFamily) continue;
      place = {.family = number, .num_characters = at.num_characters};
    }
    if (at.dfa->states[at.state].accepting) {
      at.dfa = &family.other;
      at.state = 0;
    }
    ats[here.depth + size_t{1}] = at;
    ++node;
  }
}

// By family, the tokens of each number of characters; those of more are behind them.
using CountedTokens =
    std::array<std::array<std::vector<TokenId>, TokenFamily::kCharactersMax + 2>, kNumFamilies>;

void MakeMasks(const CountedTokens& tokens, size_t num_words, TokenFamily* family) {
  std::vector<uint32_t> mask(num_words, 0);
  family->masks.push_back(mask);
  for (uint32_t count = 0; count < TokenFamily::kCharactersMax + 2; ++count) {
    bool is_new = false;
    for (const size_t contained : family->contained) {
      for (const TokenId id : tokens[contained][count]) {
        const uint32_t bit = id;
        mask[bit / 32] |= uint32_t{1} << bit % 32;
        is_new = true;
      }
    }
    if (is_new) family->masks.push_back(mask);
    family->mask_of.push_back(family->masks.size() - 1);
  }
}

// Below this many nodes a walk takes as little time as a look at the grammar.
constexpr uint32_t kNodesMin = 64;

// Goes through the nodes backwards, so that what is below a node comes before it.
std::vector<VocabularySlice::Below> FindBelow(const std::vector<TokenFamily>& families,
                                              const VocabularySlice& slice) {
  constexpr uint32_t kAllFamilies = (uint32_t{1} << kNumFamilies) - 1;
  struct Texts {
    uint32_t families = kAllFamilies;  // a bit each
    uint32_t characters_max = 0;
  };
  std::array<uint32_t, 256> families_of_byte = {};
  for (size_t family = 0; family < kNumFamilies; ++family) {
    if (families[family].first_bytes != families[family].other_bytes) continue;
    for (int byte = 0; byte < 256; ++byte) {
      // Tokens of a family have whole characters, so bytes in the middle of one need no look.
      const bool has = byte < 0x80 ? families[family].other_bytes.Has(static_cast<uint8_t>(byte))
                                   : families[family].other_bytes.Has(0xC3) &&
                                         slice.family != VocabularySlice::kNoFamily;
      if (has) families_of_byte[byte] |= uint32_t{1} << family;
    }
  }
  const std::span<const TokenTrie::Node> nodes = slice.tokens.nodes();
  std::vector<Texts> by_depth(slice.tokens.depth_max() + 2);
  std::vector<VocabularySlice::Below> below(slice.tokens.branches().size());
  for (uint32_t node = nodes.size(); node-- > 0;) {
    const TokenTrie::Node& at = nodes[node];
    const Texts texts = std::exchange(by_depth[at.depth + size_t{1}], Texts());
    // A character is complete behind its last byte; that of ASCII is one.
    if (at.is_wide && at.byte < 0x80 && texts.families != 0 && at.subtree_end - node > kNodesMin) {
      below[slice.tokens.BranchOf(node)] = {
          .family = static_cast<size_t>(std::countr_zero(texts.families)),
          .characters_max = texts.characters_max};
    }
    Texts& beside = by_depth[at.depth];
    beside.families &= texts.families & families_of_byte[at.byte];
    const bool begins = at.byte < 0x80 || at.byte >= 0xC0;
    beside.characters_max =
        std::max(beside.characters_max, texts.characters_max + (begins ? 1 : 0));
  }
  return below;
}

std::string NameOf(const TokenFamily& family, const Lengths& lengths) {
  if (lengths.max == kUnbounded) return fmt::format("{} {}..", family.name, lengths.min);
  return fmt::format("{} {}..{}", family.name, lengths.min, lengths.max);
}

}  // namespace

VocabularySlices MakeVocabularySlices(const TokenTrie& trie) {
  VocabularySlices made;
  std::vector<Place> places(static_cast<size_t>(trie.vocab_size()));
  for (const Definition& definition : kDefinitions) {
    made.families.push_back(MakeFamily(definition));
    PlaceTokens(trie, made.families.back(), made.families.size() - 1, &places);
  }
  CountedTokens tokens;
  for (const TokenId id : trie.tokens()) {
    const Place& place = places[id];
    if (place.family == VocabularySlice::kNoFamily) continue;
    const uint32_t count = std::min(place.num_characters, TokenFamily::kCharactersMax + 1);
    tokens[place.family][count].push_back(id);
  }
  const auto has_tokens = [&](size_t family, const Lengths& lengths) {
    for (uint32_t count = lengths.min; count < tokens[family].size(); ++count) {
      if (count <= lengths.max && !tokens[family][count].empty()) return true;
    }
    return false;
  };
  for (size_t number = 0; number < kNumFamilies; ++number) {
    TokenFamily& family = made.families[number];
    for (size_t other = 0; other < kNumFamilies; ++other) {
      const bool is_contained = kContains[number][other];
      if (is_contained && has_tokens(other, {1, kUnbounded})) family.contained.push_back(other);
    }
    MakeMasks(tokens, (places.size() + 31) / 32, &family);
    for (const Lengths& lengths : kLengths) {
      if (!has_tokens(number, lengths)) continue;
      made.slices.push_back(
          {.name = NameOf(family, lengths), .family = number, .characters_max = lengths.max});
    }
  }
  made.slices.push_back({.name = "the rest"});
  std::vector<TokenTrie> parts = trie.Split(made.slices.size(), [&](TokenId id) {
    const Place& place = places[id];
    size_t slice = 0;
    while (made.slices[slice].family != place.family ||
           (place.family != VocabularySlice::kNoFamily &&
            made.slices[slice].characters_max < place.num_characters)) {
      ++slice;
    }
    return slice;
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    made.slices[i].tokens = std::move(parts[i]);
    made.slices[i].below = FindBelow(made.families, made.slices[i]);
  }
  return made;
}

}  // namespace specd::grammar
