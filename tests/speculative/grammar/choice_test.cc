#include "speculative/grammar/front_ends/choice.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "speculative/grammar/automata/word_dfa.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

void CheckError(const std::string& json, absl::StatusCode code, const std::string& message) {
  INFO(json.substr(0, 100));
  GrammarRules rules;
  const absl::StatusOr<ExprId> choice = BuildChoice(json, &rules);
  REQUIRE(!choice.ok());
  const std::string found(choice.status().message());
  INFO("message: ", found);
  CHECK(choice.status().code() == code);
  CHECK(found.find(message) != std::string::npos);
}

// The smallest automaton has one state for each set of continuations (Myhill and Nerode).
size_t NumContinuationSets(const std::set<std::string>& words) {
  std::set<std::set<std::string>> sets;
  for (const std::string& word : words) {
    for (size_t size = 0; size <= word.size(); ++size) {
      std::set<std::string> continuations;
      for (const std::string& other : words) {
        if (other.compare(0, size, word, 0, size) == 0) continuations.insert(other.substr(size));
      }
      sets.insert(continuations);
    }
  }
  return sets.size();
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("choice: one of the strings and nothing else") {
    GrammarRules rules;
    const auto choice = BuildChoice(R"(["yes", "no", "yesterday", "no", "é\n\u20ac", ""])", &rules);
    REQUIRE(choice.ok());
    const GrammarReference reference(rules, *choice);
    for (const char* text : {"yes", "no", "yesterday", "é\n€", ""}) CHECK(reference.Accepts(text));
    for (const char* text : {"y", "yest", "nono", "n", "No", "\xC3", "yesterdays"}) {
      CHECK(!reference.Accepts(text));
    }
    CHECK(reference.IsPrefix("yesterd"));
    CHECK(!reference.IsPrefix("yez"));
  }

  TEST_CASE("choice: what is not a list of strings is refused") {
    const auto invalid = absl::StatusCode::kInvalidArgument;
    CheckError("", invalid, "not valid JSON");
    CheckError("[\"a\"", invalid, "not valid JSON");
    CheckError("[\"\xFF\"]", invalid, "not valid JSON");
    CheckError(R"(["\ud800"])", invalid, "not valid JSON");
    CheckError("{}", invalid, "choice is not an array");
    CheckError("\"a\"", invalid, "choice is not an array");
    CheckError("[]", invalid, "choice is an empty array");
    CheckError(R"(["a", 1])", invalid, "choice /1 is not a string");
    CheckError(R"([["a"]])", invalid, "choice /0 is not a string");
    CheckError(R"(["a", "b", null])", invalid, "choice /2 is not a string");
  }

  TEST_CASE("choice: limits") {
    const auto exhausted = absl::StatusCode::kResourceExhausted;
    std::string json = "[\"a\"";
    for (int i = 1; i < 65536; ++i) json += ",\"" + std::to_string(i) + "\"";
    GrammarRules rules;
    CHECK(BuildChoice(json + "]", &rules).ok());
    CheckError(json + ",\"b\"]", exhausted, "more than 65536 strings");
    CheckError("[\"" + std::string(4 << 20, 'a') + "\"]", exhausted, "allowed are 4194304");
    CheckError("[\"" + std::string(3 << 20, 'a') + "\"]", exhausted, "more than 1048576 states");
  }

  TEST_CASE("choice: the automaton is the smallest one, for random lists") {
    std::mt19937_64 random(1);
    for (int round = 0; round < 300; ++round) {
      std::set<std::string> words;
      for (size_t count = 1 + random() % 12; count > 0; --count) {
        std::string word;
        for (size_t size = random() % 6; size > 0; --size) word += "ab"[random() % 2];
        words.insert(word);
      }
      List<std::string_view> list(words.begin(), words.end());
      list.push_back(list[0]);
      std::shuffle(list.begin(), list.end(), random);
      const absl::StatusOr<ByteDfa> dfa = BuildWordDfa(list);
      REQUIRE(dfa.ok());
      CHECK(dfa->states.size() == NumContinuationSets(words));
      GrammarRules rules;
      const ExprId root = rules.Automaton(*dfa);
      const GrammarReference reference(rules, root);
      std::vector<std::string> texts = {""};
      for (size_t i = 0; i < texts.size() && texts[i].size() < 6; ++i) {
        texts.push_back(texts[i] + "a");
        texts.push_back(texts[i] + "b");
      }
      size_t num_wrong = 0;
      for (const std::string& text : texts) {
        num_wrong += reference.Accepts(text) != words.contains(text) ? 1 : 0;
      }
      CHECK(num_wrong == 0);
    }
  }

  TEST_CASE("choice: edges of one target are one edge") {
    const absl::StatusOr<ByteDfa> dfa = BuildWordDfa({"a0", "a1", "a2", "a4"});
    REQUIRE(dfa.ok());
    REQUIRE(dfa->states.size() == 3);
    const ByteDfa::State& middle = dfa->states[dfa->states[0].edges[0].target];
    REQUIRE(middle.edges.size() == 2);
    CHECK(middle.edges[0].first == '0');
    CHECK(middle.edges[0].last == '2');
    CHECK(BuildWordDfa({})->IsEmpty());
  }
}

}  // namespace specd::grammar
