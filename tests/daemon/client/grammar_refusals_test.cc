// The library calls of <specd/grammar.h> refuse bad input, and each text names field and range.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ipc/include/specd/grammar.h"
#include "tests/daemon/client/grammar_fixture.h"
#include "tests/support/last_error.h"

namespace specd::test {
namespace {

// `begin`, one of 5,000 rules with texts of their own, and two brackets.
std::string ManyRules(const std::string& begin) {
  std::string root = begin;
  std::string rules;
  for (int i = 0; i < 5000; ++i) {
    std::string name = "a";
    for (int bit = 0; bit < 13; ++bit) name += (i >> bit & 1) != 0 ? 'c' : 'b';
    const std::string rule = "r" + std::to_string(i);
    root += (i == 0 ? "" : " | ") + rule;
    rules += rule + " ::= \"" + name + "\" " + rule + "?\n";
  }
  return root + "))\n" + rules;
}

TEST_SUITE("unit") {
  TEST_CASE("grammar: what a tokenizer may not be") {
    const int32_t past = kVocabSize;
    const std::vector<int32_t> many(65, 1);
    const std::vector<specd_token> tokens = Tokens();
    struct Case {
      const char* part;
      void (*change)(specd_tokenizer_options*, std::vector<specd_token>*);
    };
    const Case cases[] = {
        {"exactly one", [](auto* o, auto*) { o->tokens = {}; }},
        {"exactly one", [](auto* o, auto*) { o->path = "x.json"; }},
        {"vocab_size = 0 is outside 1 .. 1048576", [](auto* o, auto*) { o->vocab_size = 0; }},
        {"vocab_size = 1048577", [](auto* o, auto*) { o->vocab_size = 1048577; }},
        {"vocab_size = 31, but the tokenizer has ids up to 31",
         [](auto* o, auto*) { o->vocab_size = 31; }},
        {"tokens.items is NULL but count = 32", [](auto* o, auto*) { o->tokens.items = nullptr; }},
        {"tokens.count = 0 is outside 1 .. 1048576", [](auto* o, auto*) { o->tokens.count = 0; }},
        {"tokens.count = 1048577", [](auto* o, auto*) { o->tokens.count = 1048577; }},
        {"tokens[4].size_bytes = 65536 is outside 0 .. 65535",
         [](auto*, auto* t) { (*t)[4].size_bytes = 65536; }},
        {"tokens[4].bytes is NULL but size_bytes = 1",
         [](auto*, auto* t) { (*t)[4].bytes = nullptr; }},
        {"tokens[4].special = 2", [](auto*, auto* t) { (*t)[4].special = 2; }},
        {"struct_size", [](auto* o, auto*) { o->struct_size = 0; }},
        {"eos_token_ids.items is NULL but count = 1",
         [](auto* o, auto*) { o->eos_token_ids.items = nullptr; }},
    };
    for (const Case& one : cases) {
      std::vector<specd_token> changed = tokens;
      specd_tokenizer_options options = TokenizerOptions(changed);
      one.change(&options, &changed);
      auto* tokenizer = reinterpret_cast<specd_tokenizer*>(1);
      CHECK(specd_tokenizer_new(&options, &tokenizer) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(tokenizer == nullptr);
      CHECK(LastErrorHas(one.part));
    }
    specd_tokenizer* tokenizer = nullptr;
    specd_tokenizer_options options = TokenizerOptions(tokens);
    options.eos_token_ids = {&past, 1};
    CHECK(specd_tokenizer_new(&options, &tokenizer) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("eos_token_ids[0] = 70 is outside 0 .. 69"));
    options.eos_token_ids = {many.data(), 65};
    CHECK(specd_tokenizer_new(&options, &tokenizer) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("eos_token_ids.count = 65 is outside 0 .. 64"));
    options.tokens = {};
    options.path = "/nowhere/tokenizer.json";
    CHECK(specd_tokenizer_new(&options, &tokenizer) < 0);
    CHECK(LastErrorHas("/nowhere/tokenizer.json"));
    CHECK(specd_tokenizer_new(nullptr, &tokenizer) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_tokenizer_new(&options, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("tokenizer is NULL"));
  }

  TEST_CASE("grammar: what cannot be compiled") {
    const Tokenizer tokenizer = NewTokenizer();
    struct Case {
      const char* part;
      void (*change)(specd_grammar_options*);
    };
    const Case cases[] = {
        {"kind = 0 is outside 1 .. 6", [](auto* o) { o->kind = SPECD_GRAMMAR_NONE; }},
        {"kind = 7", [](auto* o) { o->kind = 7; }},
        {"text is NULL", [](auto* o) { o->text = nullptr; }},
        {"text has more than 4194304 bytes", [](auto* o) { o->text_bytes = 4194305; }},
        {"whitespace = 2", [](auto* o) { o->whitespace = 2; }},
        {"lenient = 2", [](auto* o) { o->lenient = 2; }},
        {"key_order = 2", [](auto* o) { o->key_order = 2; }},
        {"struct_size", [](auto* o) { o->struct_size = 2; }},
        {"^", [](auto* o) { o->text = "(a"; }},  // a caret below the offset
    };
    for (const Case& one : cases) {
      specd_grammar_options options = GrammarOptions(SPECD_GRAMMAR_REGEX, "a");
      one.change(&options);
      auto* grammar = reinterpret_cast<specd_grammar*>(1);
      CHECK(specd_grammar_compile(tokenizer.get(), &options, &grammar) ==
            SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(grammar == nullptr);
      CHECK(LastErrorHas(one.part));
    }
    const specd_grammar_options options = GrammarOptions(SPECD_GRAMMAR_REGEX, "a");
    specd_grammar* grammar = nullptr;
    CHECK(specd_grammar_compile(nullptr, &options, &grammar) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_grammar_compile(tokenizer.get(), nullptr, &grammar) < 0);
    CHECK(specd_grammar_compile(tokenizer.get(), &options, nullptr) < 0);
    specd_grammar_info info = {};
    info.struct_size = sizeof(info) - 1;
    const Grammar made = Compile(tokenizer, SPECD_GRAMMAR_REGEX, "a");
    CHECK(specd_get_grammar_info(made.get(), &info) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_get_grammar_info(nullptr, &info) < 0);
    CHECK(specd_get_grammar_info(made.get(), nullptr) < 0);
    specd_tokenizer_free(nullptr);
    specd_grammar_free(nullptr);
    specd_matcher_free(nullptr);
  }

  TEST_CASE("grammar: what a matcher refuses, and stays as it was") {
    const Tokenizer tokenizer = NewTokenizer();
    const Grammar grammar = Compile(tokenizer, SPECD_GRAMMAR_REGEX, "a+");
    const Matcher owned = NewMatcher(grammar);
    specd_matcher* matcher = owned.get();
    REQUIRE(specd_matcher_accept(matcher, 2) == 1);
    const std::vector<int32_t> mask = MaskOf(owned);

    specd_matcher* other = nullptr;
    const int32_t wrong[] = {1, -1};
    CHECK(specd_matcher_new(grammar.get(), {wrong, 2}, &other) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("stop_ids[1] = -1 is outside 0 .. 69"));
    CHECK(specd_matcher_new(grammar.get(), {nullptr, 2}, &other) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("stop_ids.items is NULL"));
    CHECK(specd_matcher_new(grammar.get(), {wrong, 65}, &other) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("stop_ids.count = 65"));
    CHECK(specd_matcher_new(nullptr, kNone, &other) < 0);
    CHECK(specd_matcher_new(grammar.get(), kNone, nullptr) < 0);

    std::vector<int32_t> words(4, 7);
    for (const uint64_t num_words : {0, 2, 4}) {
      CHECK(specd_matcher_mask(matcher, words.data(), num_words) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("a row of vocab_size = 70 has exactly 3"));
    }
    CHECK(words == std::vector<int32_t>(4, 7));
    CHECK(specd_matcher_mask(matcher, nullptr, 3) < 0);
    CHECK(specd_matcher_mask(nullptr, words.data(), 3) < 0);
    CHECK(specd_matcher_rollback(matcher, 2) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("num_ids = 2 is outside 0 .. 1"));
    CHECK(specd_matcher_rollback(nullptr, 0) < 0);
    for (const int32_t id : {-1, 3, 7, 20, 69, 70, 96, INT32_MAX, INT32_MIN}) {
      CHECK(specd_matcher_accept(matcher, id) == 0);
    }
    CHECK(specd_matcher_accept(nullptr, 1) < 0);
    CHECK(specd_matcher_is_terminated(nullptr) < 0);
    CHECK(specd_matcher_is_accepting(nullptr) < 0);
    CHECK(specd_matcher_is_finished(nullptr) < 0);
    CHECK(specd_matcher_fork(nullptr, &other) < 0);
    CHECK(specd_matcher_fork(matcher, nullptr) < 0);
    uint64_t count = 0;
    const char* text = nullptr;
    CHECK(specd_matcher_num_accepted(nullptr, &count) < 0);
    CHECK(specd_matcher_num_accepted(matcher, nullptr) < 0);
    CHECK(specd_matcher_forced_text(nullptr, &text, &count) < 0);
    CHECK(specd_matcher_forced_text(matcher, nullptr, &count) < 0);
    CHECK(specd_matcher_forced_text(matcher, &text, nullptr) < 0);
    CHECK(specd_matcher_forced_tokens(nullptr, words.data(), 1, &count) < 0);
    CHECK(specd_matcher_forced_tokens(matcher, nullptr, 1, &count) < 0);
    CHECK(specd_matcher_forced_tokens(matcher, words.data(), 1, nullptr) < 0);
    CHECK(MaskOf(owned) == mask);
  }

  TEST_CASE("grammar: a limit was answered as an id that the constraint forbids") {
    // Behind 40 letters each of 5,000 rules may begin. The text that a compile follows ends before.
    const Tokenizer tokenizer = NewTokenizer();
    const Grammar grammar = Compile(
        tokenizer, SPECD_GRAMMAR_EBNF,
        ManyRules("root ::= \"" + std::string(39, 'a') + "\" (\"c\" \"b\"? | \"a\" (").c_str());
    const Matcher owned = NewMatcher(grammar, kNone);
    specd_matcher* matcher = owned.get();
    uint64_t num_accepted = 0;
    int answer = 1;
    while ((answer = specd_matcher_accept(matcher, 2)) == 1) REQUIRE(++num_accepted < 5000);
    CHECK(answer == SPECD_ERROR_EXHAUSTED);
    CHECK(LastErrorHas("more than 4096 ways"));
    // The matcher stands where it stood, and knows what it can know there.
    uint64_t count = 0;
    REQUIRE(specd_matcher_num_accepted(matcher, &count) == SPECD_OK);
    CHECK(count == num_accepted);
    CHECK(specd_matcher_is_accepting(matcher) == 0);
    CHECK(specd_matcher_is_finished(matcher) == 0);
    CHECK(specd_matcher_accept(matcher, 3) == 0);  // "b" is forbidden before the "c"
    CHECK(specd_matcher_accept(matcher, -1) == 0);
    std::vector<int32_t> words(kNumWords, 7);
    CHECK(specd_matcher_mask(matcher, words.data(), kNumWords) == SPECD_ERROR_EXHAUSTED);
    CHECK(words == std::vector<int32_t>(kNumWords, 7));
    REQUIRE(specd_matcher_accept(matcher, 4) == 1);
    CHECK(specd_matcher_is_accepting(matcher) == 1);
    CHECK(specd_matcher_accept(matcher, 3) == 1);
  }

  TEST_CASE("grammar: is_finished said no where a limit kept it from knowing") {
    // Behind "aa" ten times each of 5,000 rules may begin.
    // The tokens of one letter are stop ids, so a mask alone tells whether "aa" or "bb" goes on.
    static const int32_t kStops[] = {1, 2, 3};
    const Tokenizer tokenizer = NewTokenizer();
    const Grammar grammar =
        Compile(tokenizer, SPECD_GRAMMAR_EBNF,
                ManyRules("root ::= \"\" | \"aaaaaaaaaaaaaaaaaaaa\" (\"\" | \"aa\" (").c_str());
    const Matcher owned = NewMatcher(grammar, {kStops, 3});
    specd_matcher* matcher = owned.get();
    CHECK(specd_matcher_is_finished(matcher) == 0);
    int answer = 1;
    for (int i = 0; (answer = specd_matcher_accept(matcher, 23)) == 1; ++i) REQUIRE(i < 5000);
    REQUIRE(answer == SPECD_ERROR_EXHAUSTED);
    CHECK(specd_matcher_is_accepting(matcher) == 1);
    CHECK(specd_matcher_is_finished(matcher) == SPECD_ERROR_EXHAUSTED);
    CHECK(LastErrorHas("more than 4096 ways"));
    REQUIRE(specd_matcher_rollback(matcher, 1) == SPECD_OK);
    CHECK(specd_matcher_is_finished(matcher) == 0);
  }

  TEST_CASE("grammar: what a batch may not be") {
    const Tokenizer tokenizer = NewTokenizer();
    const Tokenizer wide_tokenizer = NewTokenizer(kVocabSize + 1);
    const Matcher first = NewMatcher(Compile(tokenizer, SPECD_GRAMMAR_REGEX, "a"));
    const Matcher second = NewMatcher(Compile(tokenizer, SPECD_GRAMMAR_REGEX, "a"));
    const Matcher wide = NewMatcher(Compile(wide_tokenizer, SPECD_GRAMMAR_REGEX, "a"));
    static const uint32_t kSame[] = {1, 1};
    static const uint32_t kPast[] = {0, 2};
    std::vector<int32_t> words(2 * kNumWords, 7);
    specd_mask_rows good;
    specd_mask_rows_init(&good);
    good.words = words.data();
    good.num_rows = 2;
    struct Case {
      const char* part;
      std::vector<specd_matcher*> matchers;
      void (*change)(specd_mask_rows*);
    };
    const auto nothing = [](specd_mask_rows*) {};
    const std::vector<specd_matcher*> both = {first.get(), second.get()};
    const Case cases[] = {
        {"matchers[1] is NULL", {first.get(), nullptr}, nothing},
        {"there twice", {first.get(), first.get()}, nothing},
        {"matchers[1] has vocab_size = 71", {first.get(), wide.get()}, nothing},
        {"words is NULL", both, [](auto* r) { r->words = nullptr; }},
        {"num_rows = 0 is outside 1", both, [](auto* r) { r->num_rows = 0; }},
        {"num_rows = 2147483648", both, [](auto* r) { r->num_rows = uint64_t{1} << 31; }},
        {"matchers[1] has row 1, which is outside 0 .. 0", both, [](auto* r) { r->num_rows = 1; }},
        {"row_stride = 2 is outside 3", both, [](auto* r) { r->row_stride = 2; }},
        {"row_stride = 18446744073709551615", both, [](auto* r) { r->row_stride = ~uint64_t{0}; }},
        {"two matchers have the same row", both, [](auto* r) { r->indices = kSame; }},
        {"matchers[1] has row 2", both, [](auto* r) { r->indices = kPast; }},
        {"threads = 17 is outside 0 .. 16", both, [](auto* r) { r->threads = 17; }},
        {"struct_size", both, [](auto* r) { r->struct_size = 1; }},
    };
    for (const Case& one : cases) {
      specd_mask_rows rows = good;
      one.change(&rows);
      CHECK(specd_fill_masks(one.matchers.data(), one.matchers.size(), &rows) ==
            SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas(one.part));
    }
    CHECK(specd_fill_masks(nullptr, 2, &good) < 0);
    CHECK(specd_fill_masks(both.data(), 2, nullptr) < 0);
    CHECK(words == std::vector<int32_t>(2 * kNumWords, 7));
    CHECK(specd_fill_masks(nullptr, 0, &good) == SPECD_OK);
  }
}

}  // namespace
}  // namespace specd::test
