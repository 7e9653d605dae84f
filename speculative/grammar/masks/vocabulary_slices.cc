#include "speculative/grammar/masks/vocabulary_slices.h"

#include <array>
#include <span>
#include <utility>

#include "fmt/format.h"
#include "kernels/core/check.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {
namespace {

constexpr std::array<CharRange, 2> kLetters = {{{'A', 'Z'}, {'a', 'z'}}};
constexpr std::array<CharRange, 5> kNameCharacters = {
    {{'-', '-'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}};
// The characters that a JSON string holds unescaped: no control character, quote or backslash.
constexpr std::array<CharRange, 3> kStringAscii = {{{' ', '!'}, {'#', '['}, {']', '~'}}};
constexpr std::array<CharRange, 3> kStringCharacters = {{{' ', '!'}, {'#', '['}, {']', kCharMax}}};

// Texts of `characters`, after one space or without it.
struct Family {
  const char* name;
  bool begins_with_space;
  std::span<const CharRange> characters;
};

// The smaller language first: a grammar that refuses a family may allow those before it.
constexpr std::array<Family, 5> kFamilies = {{
    {.name = "letters", .begins_with_space = false, .characters = kLetters},
    {.name = "space and letters", .begins_with_space = true, .characters = kLetters},
    {.name = "letters, digits, _ and -", .begins_with_space = false, .characters = kNameCharacters},
    {.name = "ASCII of a string", .begins_with_space = false, .characters = kStringAscii},
    {.name = "characters of a string", .begins_with_space = false, .characters = kStringCharacters},
}};

// By family: the families whose texts are texts of it too, itself included.
constexpr std::array<std::array<bool, kFamilies.size()>, kFamilies.size()> kContains = {{
    {true, false, false, false, false},
    {false, true, false, false, false},
    {true, false, true, false, false},
    {true, true, true, true, false},
    {true, true, true, true, true},
}};

// A string with a bound on its length still contains the slices of shorter tokens.
struct Lengths {
  uint32_t min;
  uint32_t max;
};
constexpr std::array<Lengths, 4> kLengths = {{{1, 8}, {9, 16}, {17, 32}, {33, kUnbounded}}};

ByteDfa LanguageOf(const Family& family, Lengths lengths) {
  CharSet characters;
  for (const CharRange& range : family.characters) characters.Add(range.first, range.last);
  GrammarRules rules;
  ExprId lead = rules.Empty();
  if (family.begins_with_space) {
    lead = rules.Literal(" ");
    lengths.min = lengths.min == 1 ? 1 : lengths.min - 1;  // at least one letter
    if (lengths.max != kUnbounded) --lengths.max;
  }
  const ExprId rest = rules.Repeat(rules.Chars(characters), lengths.min, lengths.max);
  absl::StatusOr<ByteDfa> language = Determinize(rules, rules.Sequence({lead, rest}));
  SPECD_CHECK(language.ok());
  return *std::move(language);
}

std::string NameOf(const Family& family, const Lengths& lengths) {
  if (lengths.max == kUnbounded) return fmt::format("{} {}..", family.name, lengths.min);
  return fmt::format("{} {}..{}", family.name, lengths.min, lengths.max);
}

// Writes `number` for each token that is in the language and has no number yet. Returns true if it
// wrote any.
bool Number(const TokenTrie& trie, const ByteDfa& language, uint8_t number,
            std::vector<uint8_t>* number_of) {
  bool is_used = false;
  std::vector<uint32_t> states(trie.depth_max() + 1, 0);
  for (uint32_t node = 0; node < trie.nodes().size();) {
    const TokenTrie::Node& at = trie.nodes()[node];
    const uint32_t state = language.Step(states[at.depth], at.byte);
    if (state == ByteDfa::kDead) {
      node = at.subtree_end;
      continue;
    }
    states[at.depth + size_t{1}] = state;
    if (language.states[state].accepting) {
      for (const TokenId id : trie.TokensAt(node)) {
        uint8_t& number_of_id = (*number_of)[static_cast<size_t>(id)];
        if (number_of_id != 0) continue;
        number_of_id = number;
        is_used = true;
      }
    }
    ++node;
  }
  return is_used;
}

std::vector<uint32_t> MaskOf(const TokenTrie& tokens) {
  std::vector<uint32_t> mask((static_cast<size_t>(tokens.vocab_size()) + 31) / 32, 0);
  for (const TokenId id : tokens.tokens()) {
    const auto bit = static_cast<uint32_t>(id);
    mask[bit / 32] |= uint32_t{1} << bit % 32;
  }
  return mask;
}

}  // namespace

std::vector<VocabularySlice> MakeVocabularySlices(const TokenTrie& trie) {
  static_assert(kFamilies.size() * kLengths.size() < 255, "a number fits a byte");
  std::vector<VocabularySlice> slices;
  // By id: the number of its slice from 1, or 0.
  std::vector<uint8_t> number_of(static_cast<size_t>(trie.vocab_size()), 0);
  for (size_t family = 0; family < kFamilies.size(); ++family) {
    for (const Lengths& lengths : kLengths) {
      ByteDfa language = LanguageOf(kFamilies[family], lengths);
      const auto number = static_cast<uint8_t>(slices.size() + 1);
      if (!Number(trie, language, number, &number_of)) continue;
      slices.push_back({.name = NameOf(kFamilies[family], lengths),
                        .language = std::move(language),
                        .family = family,
                        .characters_max = lengths.max});
    }
  }
  slices.push_back({.name = "the rest"});
  for (uint8_t& number : number_of) {
    if (number == 0) number = static_cast<uint8_t>(slices.size());
  }
  std::vector<TokenTrie> parts = trie.Split(
      slices.size(), [&](TokenId id) { return size_t{number_of[static_cast<size_t>(id)]} - 1; });
  for (size_t i = 0; i < slices.size(); ++i) {
    slices[i].mask = MaskOf(parts[i]);
    slices[i].tokens = std::move(parts[i]);
    for (const TokenTrie::Node& node : slices[i].tokens.nodes()) {
      if (node.depth == 0) slices[i].first_bytes.Add(node.byte);
    }
  }
  return slices;
}

std::vector<SliceCover> MakeSliceCovers(std::span<const VocabularySlice> slices) {
  const auto make = [&](size_t family, uint32_t characters_max) {
    SliceCover::Part part = {.language = LanguageOf(kFamilies[family], {1, characters_max}),
                             .slices = std::vector<bool>(slices.size()),
                             .mask = std::vector<uint32_t>(slices[0].mask.size())};
    for (size_t i = 0; i < slices.size(); ++i) {
      const bool is_contained = slices[i].language.has_value() &&
                                kContains[family][slices[i].family] &&
                                slices[i].characters_max <= characters_max;
      if (!is_contained) continue;
      part.slices[i] = true;
      for (size_t word = 0; word < part.mask.size(); ++word) {
        part.mask[word] |= slices[i].mask[word];
      }
    }
    return part;
  };
  std::vector<SliceCover> covers;
  for (size_t family = kFamilies.size(); family-- > 0;) {
    // A character may be four bytes, so a language of many characters has many states; few tokens
    // have more than eight of them.
    const bool is_ascii = family + 1 < kFamilies.size();
    covers.push_back(
        {.any_length = make(family, kUnbounded), .short_texts = make(family, is_ascii ? 16 : 8)});
  }
  return covers;
}

}  // namespace specd::grammar
