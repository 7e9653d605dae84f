// Follower follows texts along the automaton of rules, for tests that compare it with
// GrammarReference.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/network/network.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/states/lazy_automaton.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {

class Follower {
 public:
  explicit Follower(const GrammarRules& rules)
      : network_(*Network::Build(rules)), automaton_(&network_) {}

  StateId After(std::string_view text) {
    StateId state = automaton_.start();
    for (const char byte : text) state = automaton_.Step(state, static_cast<uint8_t>(byte));
    return state;
  }
  bool IsPrefix(std::string_view text) { return LazyAutomaton::IsAlive(After(text)); }
  bool Accepts(std::string_view text) {
    return IsPrefix(text) && automaton_.IsAccepting(After(text));
  }
  LazyAutomaton& automaton() { return automaton_; }

 private:
  Network network_;
  LazyAutomaton automaton_;
};

// Every text over `letters` of at most `length` letters.
inline std::vector<std::string> AllTexts(std::string_view letters, size_t length) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() == length) continue;
    for (const char letter : letters) texts.push_back(texts[i] + letter);
  }
  return texts;
}

inline void CheckAgainstReference(const GrammarRules& rules, std::string_view letters,
                                  size_t length) {
  Follower follower(rules);
  GrammarReference reference(rules);
  for (const std::string& text : AllTexts(letters, length)) {
    CAPTURE(text);
    REQUIRE(follower.IsPrefix(text) == reference.IsPrefix(text));
    REQUIRE(follower.Accepts(text) == reference.Accepts(text));
  }
}

}  // namespace specd::grammar
