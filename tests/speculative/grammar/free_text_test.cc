#include "speculative/grammar/front_ends/free_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/base/utf8_text.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

using Groups = std::vector<std::vector<std::string>>;

// The group of the string that ends the first part of `text` that any string ends; -1: none does.
// An excluded string is group -2. *size_bytes is the part's.
int FirstGroup(const Groups& groups, const std::vector<std::string>& excluded,
               std::string_view text, size_t* size_bytes) {
  for (*size_bytes = 1; *size_bytes <= text.size(); ++*size_bytes) {
    const std::string_view part = text.substr(0, *size_bytes);
    for (const std::string& other : excluded) {
      if (part.ends_with(other)) return -2;
    }
    for (size_t group = 0; group < groups.size(); ++group) {
      for (const std::string& marker : groups[group]) {
        if (part.ends_with(marker)) return static_cast<int>(group);
      }
    }
  }
  return -1;
}

void CheckAgainstDefinition(const Groups& groups, const std::vector<std::string>& excluded,
                            const std::vector<std::string>& texts) {
  const absl::StatusOr<FreeText> free_text = FreeText::Create(groups, excluded);
  REQUIRE(free_text.ok());
  GrammarRules rules;
  const ExprId without = rules.Automaton(free_text->Without());
  std::vector<ExprId> through;
  for (size_t i = 0; i < groups.size(); ++i) {
    through.push_back(rules.Automaton(free_text->Through(i)));
  }
  const GrammarReference without_reference(rules, without);
  std::vector<GrammarReference> references;
  for (const ExprId expr : through) references.emplace_back(rules, expr);
  for (const std::string& text : texts) {
    INFO("text '", text, "'");
    const bool is_valid = FindInvalidUtf8(text) == std::string_view::npos;
    size_t size_bytes = 0;
    const int group = FirstGroup(groups, excluded, text, &size_bytes);
    CHECK(without_reference.Accepts(text) == (is_valid && group == -1));
    for (size_t i = 0; i < groups.size(); ++i) {
      const bool ends_here = group == static_cast<int>(i) && size_bytes == text.size();
      CHECK(references[i].Accepts(text) == (is_valid && ends_here));
    }
  }
}

std::vector<std::string> AllTexts(const std::vector<std::string>& pieces, size_t num_pieces_max) {
  std::vector<std::string> texts = {""};
  size_t begin = 0;
  for (size_t count = 0; count < num_pieces_max; ++count) {
    const size_t end = texts.size();
    for (; begin < end; ++begin) {
      for (const std::string& piece : pieces) texts.push_back(texts[begin] + piece);
    }
  }
  return texts;
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("free text: stops at the first marker") {
    const std::vector<std::string> texts = AllTexts({"a", "b"}, 7);
    CheckAgainstDefinition({{"aab"}}, {}, texts);
    CheckAgainstDefinition({{"aa"}, {"bab"}}, {}, texts);
    CheckAgainstDefinition({{"ab", "b"}, {"aaa"}}, {}, texts);
    CheckAgainstDefinition({{"abb"}}, {"aa", "bab"}, texts);
    CheckAgainstDefinition({{}}, {"bb"}, texts);
    CheckAgainstDefinition({{"ab"}}, {"bab"}, texts);
    CheckAgainstDefinition({{"a", "b"}}, {}, texts);
  }

  TEST_CASE("free text: random markers") {
    std::mt19937_64 random(2);
    const std::vector<std::string> texts = AllTexts({"a", "b"}, 6);
    for (int round = 0; round < 60; ++round) {
      // The markers have one length, so that none is the end of another.
      const size_t size = 2 + random() % 3;
      Groups groups(1 + random() % 3);
      std::vector<std::string> used;
      for (auto& group : groups) {
        std::string marker;
        for (size_t i = 0; i < size; ++i) marker += "ab"[random() % 2];
        if (std::find(used.begin(), used.end(), marker) != used.end()) continue;
        used.push_back(marker);
        group.push_back(marker);
      }
      CheckAgainstDefinition(groups, {}, texts);
    }
  }

  TEST_CASE("free text: is valid UTF-8") {
    const std::vector<std::string> texts = AllTexts(
        {"a", "\xC3", "\xA9", "\xE2", "\x82", "\xAC", "\xF0\x9F", "\x98\x80", "\xED", "\x9F"}, 4);
    CheckAgainstDefinition({{}}, {}, texts);
    CheckAgainstDefinition({{"é"}, {"€a"}}, {"aé", "aaa"}, texts);
    CheckAgainstDefinition({{"😀"}}, {"é€"}, texts);
    // Every lead byte with its edges: the reference's own decoder knows them too.
    std::vector<std::string> leads;
    for (int lead = 0x80; lead <= 0xFF; ++lead) {
      for (const char second : {'\x7F', '\x80', '\x8F', '\x90', '\x9F', '\xA0', '\xBF', '\xC0'}) {
        for (const char* rest : {"", "\x80", "\xBF\x80"}) {
          leads.push_back(std::string(1, static_cast<char>(lead)) + second + rest);
        }
      }
    }
    CheckAgainstDefinition({{"z"}}, {}, leads);
  }

  TEST_CASE("free text: every state can be completed") {
    std::vector<std::string> excluded;
    for (int last = 0x80; last < 0xC0; ++last) {
      excluded.push_back(std::string("\xC3") + static_cast<char>(last));
    }
    const absl::StatusOr<FreeText> text = FreeText::Create({{}}, excluded);
    REQUIRE(text.ok());
    const ByteDfa dfa = text->Without();
    const auto has_edge = [&](uint8_t byte) {
      return std::any_of(
          dfa.states[0].edges.begin(), dfa.states[0].edges.end(),
          [&](const ByteDfa::Edge& edge) { return edge.first <= byte && byte <= edge.last; });
    };
    CHECK(has_edge(0xC2));
    CHECK(!has_edge(0xC3));
    CHECK(has_edge(0xC4));
  }

  TEST_CASE("free text: the size of the markers is limited") {
    CHECK(FreeText::Create({{std::string(16384, 'a')}}, {}).ok());
    const auto text = FreeText::Create({{std::string(16384, 'a')}}, {"b"});
    CHECK(text.status().code() == absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace specd::grammar
