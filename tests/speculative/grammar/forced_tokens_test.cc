#include "speculative/grammar/matchers/forced_tokens.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/compiler/grammar_compiler.h"

namespace specd::grammar {
namespace {

constexpr int32_t kVocabSize = 40;
constexpr TokenId kEos = 0;

// Every text of one or two letters, and some longer ones.
Vocabulary MakeVocabulary() {
  Vocabulary::Builder builder;
  builder.Set(kEos, "</s>", {.special = true});
  const std::string pieces[] = {"a",   "b",    "c",   "ab",  "ba",    "ca",  "cc",
                                "abc", "bcab", "ccc", "aab", "abcab", "bbc", "cab"};
  TokenId id = 1;
  for (const std::string& piece : pieces) builder.Set(id++, piece, {});
  return std::move(builder).Build();
}

// The rule of the header, said over the whole vocabulary and without masks: a longer token is
// possible if a fork accepts it.
std::vector<TokenId> FindNaively(const Vocabulary& vocabulary, const GrammarMatcher& matcher) {
  std::vector<TokenId> ids;
  const std::unique_ptr<GrammarMatcher> at = matcher.Fork();
  std::string rest = at->ForcedText();
  while (!rest.empty()) {
    TokenId longest = kNoToken;
    for (TokenId id = 1; id < vocabulary.size(); ++id) {
      const std::string text(vocabulary.Bytes(id));
      if (text.size() > rest.size() && text.starts_with(rest) && at->Fork()->Accept(id)) return ids;
      const bool is_longer = longest == kNoToken || text.size() > vocabulary.Bytes(longest).size();
      if (rest.starts_with(text) && is_longer) longest = id;
    }
    if (longest == kNoToken) return ids;
    REQUIRE(at->Accept(longest));
    ids.push_back(longest);
    rest.erase(0, vocabulary.Bytes(longest).size());
  }
  return ids;
}

TEST_SUITE("unit") {
  TEST_CASE("forced tokens equal a search of the whole vocabulary, on random choices") {
    const Vocabulary vocabulary = MakeVocabulary();
    GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
    const ForcedTokenFinder finder(TokenTrie::Build(vocabulary, kVocabSize));
    std::mt19937 random(3);
    size_t num_found = 0;
    size_t num_cut = 0;
    for (int round = 0; round < 400; ++round) {
      const auto letters = [&](size_t count) {
        std::string text;
        for (; count > 0; --count) text.push_back(static_cast<char>('a' + random() % 3));
        return text;
      };
      const std::string shared = letters(1 + random() % 9);
      const std::string choices = "[\"" + shared + letters(1 + random() % 4) + "\", \"" + shared +
                                  letters(random() % 5) + "\"]";
      CAPTURE(choices);
      const auto compiled = compiler.CompileAnew({.kind = GrammarKind::kChoice, .text = choices});
      REQUIRE(compiled.ok());
      const auto matcher = (*compiled)->NewMatcher({.stop_ids = {kEos}});
      const std::vector<TokenId> expected = FindNaively(vocabulary, *matcher);
      REQUIRE(finder.Find(*matcher, 64) == expected);
      std::string text;
      for (const TokenId id : expected) text += vocabulary.Bytes(id);
      num_found += expected.size();
      num_cut += text.size() < matcher->ForcedText().size();
      CHECK(matcher->num_accepted() == 0);
      if (expected.size() < 2) continue;
      CHECK(finder.Find(*matcher, 1) == std::vector<TokenId>{expected[0]});
    }
    CHECK(num_found > 400);
    CHECK(num_cut > 40);
  }
}

}  // namespace
}  // namespace specd::grammar
