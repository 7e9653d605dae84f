// XgrammarFixture: the xgrammar library with a small vocabulary, for the tests of oracle.xgrammar.
//
// SPECD_XGRAMMAR_DIR names the library's directory; the process ends with an error without it. The
// tokens end inside characters, strings and tags, and begin others.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>

#include <initializer_list>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/grammar_backend.h"

namespace specd::grammar {

extern const std::vector<std::string> kTokens;  // the ids from 0
inline constexpr TokenId kPad = 33;             // special, with text
inline constexpr TokenId kHole = 34;
inline constexpr TokenId kEos = 35;
inline constexpr TokenId kStopX = 25;  // "x", which also is text
// Two words, with ids after the vocabulary.
inline constexpr int32_t kVocabSize = 45;

// A structural tag over the tokens.
inline constexpr const char* kTags =
    R"({"triggers":["<f"],"tags":[{"begin":"<f=a>","schema":{"type":"object"},"end":"</f>"}]})";

// The library, loaded once for all cases.
struct XgrammarFixture {
  struct sigaction fault_handler_before = {};
  struct sigaction fault_handler_after = {};
  std::shared_ptr<GrammarBackend> backend;
  std::shared_ptr<GrammarBackend> bytes;  // id = byte

  XgrammarFixture();
};
const XgrammarFixture& Library();

std::shared_ptr<const CompiledGrammar> Compile(GrammarKind kind, const std::string& text,
                                               Whitespace whitespace = Whitespace::kFlexible);
std::unique_ptr<GrammarMatcher> MatcherOf(GrammarKind kind, const std::string& text,
                                          std::vector<TokenId> stop_ids = {kEos});

std::set<TokenId> Allowed(GrammarMatcher& matcher);
TokenId Draw(const std::set<TokenId>& ids, std::mt19937& random);

// The ids of tokens, by their texts; kEos for "</s>".
std::set<TokenId> Ids(std::initializer_list<std::string_view> texts);
TokenId Id(std::string_view text);

// Accepts a text as its longest tokens; false at the first that is refused.
bool AcceptText(GrammarMatcher& matcher, std::string_view text);

}  // namespace specd::grammar
