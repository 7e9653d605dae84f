// GrammarFixture has a small tokenizer for tests of <specd/grammar.h>, owners of the handles, and
// answers as vectors.
//
// The tokenizer has a stop id with a text, ids without a text, a special token in the middle, and
// two ids of the same text. No state.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ipc/include/specd/grammar.h"

namespace specd::test {

inline constexpr uint32_t kVocabSize = 70;  // more columns than ids, and no multiple of 32
inline constexpr uint64_t kNumWords = 3;
inline constexpr int32_t kGrammarEos = 0;
inline constexpr int32_t kStop = 1;
inline const specd_ids kNone = {nullptr, 0};

// By id.
inline const std::vector<std::string> kTexts = {
    "</s>", "b",    "a",     "b",        "c",     "ab",  "abc",    "",
    "ba",   "{",    "}",     "\"",       ":",     ",",   " ",      "\n",
    "1",    "12",   "\"a\"", "\":",      "<pad>", "cab", "bb",     "aa",
    "",     "\xC3", "\xA9",  "\xC3\xA9", "abcab", "ab",  "\"a\":", std::string("\0", 1)};
inline constexpr int32_t kPad = 20;

struct Free {
  void operator()(specd_tokenizer* tokenizer) const { specd_tokenizer_free(tokenizer); }
  void operator()(specd_grammar* grammar) const { specd_grammar_free(grammar); }
  void operator()(specd_matcher* matcher) const { specd_matcher_free(matcher); }
};
using Tokenizer = std::unique_ptr<specd_tokenizer, Free>;
using Grammar = std::unique_ptr<specd_grammar, Free>;
using Matcher = std::unique_ptr<specd_matcher, Free>;

inline std::vector<specd_token> Tokens() {
  std::vector<specd_token> tokens;
  for (const std::string& text : kTexts) {
    tokens.push_back(
        {.bytes = text.data(), .size_bytes = static_cast<uint32_t>(text.size()), .special = 0});
  }
  tokens[kGrammarEos].special = 1;
  tokens[kPad].special = 1;
  return tokens;
}

inline specd_tokenizer_options TokenizerOptions(const std::vector<specd_token>& tokens) {
  specd_tokenizer_options options;
  specd_tokenizer_options_init(&options);
  options.vocab_size = kVocabSize;
  options.tokens = {tokens.data(), tokens.size()};
  options.eos_token_ids = {&kGrammarEos, 1};
  return options;
}

inline Tokenizer NewTokenizer(uint32_t vocab_size = kVocabSize) {
  const std::vector<specd_token> tokens = Tokens();
  specd_tokenizer_options options = TokenizerOptions(tokens);
  options.vocab_size = vocab_size;
  specd_tokenizer* tokenizer = nullptr;
  REQUIRE_MESSAGE(specd_tokenizer_new(&options, &tokenizer) == SPECD_OK,
                  std::string(specd_last_error()));
  return Tokenizer(tokenizer);
}

inline specd_grammar_options GrammarOptions(uint32_t kind, const char* text) {
  specd_grammar_options options;
  specd_grammar_options_init(&options);
  options.kind = kind;
  options.text = text;
  return options;
}

inline Grammar Compile(const Tokenizer& tokenizer, uint32_t kind, const char* text) {
  const specd_grammar_options options = GrammarOptions(kind, text);
  specd_grammar* grammar = nullptr;
  REQUIRE_MESSAGE(specd_grammar_compile(tokenizer.get(), &options, &grammar) == SPECD_OK,
                  std::string(specd_last_error()));
  return Grammar(grammar);
}

inline Matcher NewMatcher(const Grammar& grammar, specd_ids stop_ids = {&kStop, 1}) {
  specd_matcher* matcher = nullptr;
  REQUIRE_MESSAGE(specd_matcher_new(grammar.get(), stop_ids, &matcher) == SPECD_OK,
                  std::string(specd_last_error()));
  return Matcher(matcher);
}

inline Matcher Fork(const Matcher& matcher) {
  specd_matcher* fork = nullptr;
  REQUIRE(specd_matcher_fork(matcher.get(), &fork) == SPECD_OK);
  return Matcher(fork);
}

inline std::vector<int32_t> MaskOf(const Matcher& matcher) {
  std::vector<int32_t> words(kNumWords, 0x55555555);
  REQUIRE(specd_matcher_mask(matcher.get(), words.data(), kNumWords) == SPECD_OK);
  return words;
}

inline bool Allows(const std::vector<int32_t>& words, int32_t id) {
  return (static_cast<uint32_t>(words[static_cast<size_t>(id / 32)]) >> (id % 32) & 1) != 0;
}

inline std::vector<int32_t> AllowedIds(const Matcher& matcher) {
  const std::vector<int32_t> words = MaskOf(matcher);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < static_cast<int32_t>(kNumWords * 32); ++id) {
    if (Allows(words, id)) ids.push_back(id);
  }
  return ids;
}

inline std::string ForcedText(const Matcher& matcher) {
  const char* text = nullptr;
  uint64_t size_bytes = 99;
  REQUIRE(specd_matcher_forced_text(matcher.get(), &text, &size_bytes) == SPECD_OK);
  return {text, size_bytes};
}

inline std::vector<int32_t> ForcedTokens(const Matcher& matcher, uint64_t max_ids = 64) {
  std::vector<int32_t> ids(max_ids);
  uint64_t num_ids = 99;
  REQUIRE(specd_matcher_forced_tokens(matcher.get(), ids.data(), max_ids, &num_ids) == SPECD_OK);
  ids.resize(num_ids);
  return ids;
}

}  // namespace specd::test
