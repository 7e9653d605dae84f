// Masks of a vocabulary that has tokens of every family, token by token.
#include <doctest/doctest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/compiler/front_ends.h"
#include "speculative/grammar/masks/mask_builder.h"
#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

// Words of one alphabet each, with heads as real tokens have; every byte is a token.
Vocabulary MakeVocabulary(int32_t num_tokens, std::mt19937* random) {
  static const std::array<std::vector<std::string>, 6> alphabets = {{
      {"a", "e", "i", "l", "n", "o", "r", "s", "t", "u", "x", "z"},
      {"a", "e", "n", "R", "S", "T"},
      {"0", "1", "2", "5", "9"},
      {"a", "b", "c", "0", "7", "_", "-"},
      {"a", " ", ".", ",", "@", "{", "}", "[", "]", ":", "/"},
      {"a", "é", "ж", "Ω", "你", "\xF0\x9F\x98\x80", "\xE4\xBD", "\xC3"},
  }};
  static const std::array<std::string, 12> heads = {"",  "",   "",   " ",    " ",    "_",
                                                    ".", "\"", "\\", "\": ", "\\u0", "\n"};
  Vocabulary::Builder builder;
  for (TokenId id = 0; id < num_tokens; ++id) {
    if (id < 256) {
      builder.Set(id, std::string(1, static_cast<char>(id)), {});
      continue;
    }
    std::string token = heads[(*random)() % heads.size()];
    const std::vector<std::string>& alphabet = alphabets[(*random)() % alphabets.size()];
    const auto length = 1 + (*random)() % ((*random)() % 8 == 0 ? 24 : 6);
    for (size_t i = 0; i < length; ++i) token += alphabet[(*random)() % alphabet.size()];
    if ((*random)() % 16 == 0) token += "\"";
    builder.Set(id, token, {});
  }
  return std::move(builder).Build();
}

struct Case {
  GrammarKind kind;
  const char* text;
};
const Case kCases[] = {
    {GrammarKind::kJsonSchema, R"({"type":"string"})"},
    {GrammarKind::kJsonSchema, R"({"type":"string","maxLength":4})"},
    {GrammarKind::kJsonSchema, R"({"type":"string","minLength":3,"maxLength":7})"},
    {GrammarKind::kJsonSchema, R"({"type":"string","minLength":9,"maxLength":19})"},
    {GrammarKind::kJsonSchema, R"({"type":"array","items":{"type":"string","minLength":2}})"},
    {GrammarKind::kJsonSchema, R"({"type":"string","pattern":"^[a-z][a-z0-9_]{0,11}$"})"},
    {GrammarKind::kJsonSchema, R"({"type":"string","format":"email"})"},
    {GrammarKind::kJsonSchema, R"({"type":"object","properties":{"a":{"type":"integer"},)"
                               R"("rest":{"type":["string","null"],"maxLength":12}}})"},
    {GrammarKind::kJsonObject, ""},
    {GrammarKind::kRegex, "[^\\n]{1,20}"},
    {GrammarKind::kRegex, "([A-Z][a-z]{1,5} ?){2,4}"},
    {GrammarKind::kRegex, "[ -~]{0,9}(é|[a-z]{3})*"},
    {GrammarKind::kRegex, "(a|ab|[a-z]{3}|[0-9]{2}x){2,30}"},
    {GrammarKind::kEbnf, "root ::= name (\" = \" name)*\nname ::= [a-z] [a-z0-9_]*"},
};

TEST_SUITE("unit") {
  TEST_CASE("a mask has the tokens whose bytes may follow, and no other") {
    std::mt19937 random(21);
    const int32_t num_tokens = GridSize({.full = 6000, .sanitized = 1500});
    const Vocabulary vocabulary = MakeVocabulary(num_tokens, &random);
    const MaskBuilder builder(TokenTrie::Build(vocabulary, num_tokens));
    for (const Case& c : kCases) {
      CAPTURE(c.text);
      std::vector<std::string> warnings;
      const auto network =
          BuildNetwork({.kind = c.kind, .text = c.text}, ByteSet::All(), &warnings);
      REQUIRE_MESSAGE(network.ok(), network.status().ToString());
      for (int walk = 0; walk < GridSize({.full = 6, .sanitized = 1}); ++walk) {
        LazyAutomaton automaton(&*network);
        StateId state = automaton.start();
        std::string text;
        for (int step = 0; step < 12 && !automaton.NextBytes(state).IsEmpty(); ++step) {
          CAPTURE(text);
          MaskWork work(&builder, &automaton, state);
          // In slices of one size in each walk, so that every part of the work stops somewhere.
          for (bool is_done = false; !is_done;) {
            WorkSlice slice = {.units = walk == 0 ? BudgetLimits::kNone : 1u << (3 * walk - 3)};
            is_done = work.Advance(&slice);
          }
          REQUIRE(work.limit() == LazyAutomaton::kDead);
          const MaskWords words = work.TakeWords();
          std::vector<TokenId> allowed;
          for (TokenId id = 0; id < num_tokens; ++id) {
            const StateId next = automaton.StepText(state, vocabulary.Bytes(id));
            const bool is_allowed = (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
            REQUIRE_MESSAGE(is_allowed == LazyAutomaton::IsAlive(next), "id ", id, " ",
                            std::string(vocabulary.Bytes(id)));
            if (is_allowed) allowed.push_back(id);
          }
          if (allowed.empty()) break;
          const TokenId id = allowed[random() % allowed.size()];
          text += vocabulary.Bytes(id);
          state = automaton.StepText(state, vocabulary.Bytes(id));
        }
      }
    }
  }
}

}  // namespace
}  // namespace specd::grammar
