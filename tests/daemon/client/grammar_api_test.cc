// The library calls of <specd/grammar.h>: masks against brute force over ids, batches, forced
// tokens.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/include/specd/grammar.h"
#include "tests/daemon/client/grammar_fixture.h"
#include "tests/support/last_error.h"
#include "tests/tools/tiny_tokenizer.h"

namespace specd::test {
namespace {

const std::pair<uint32_t, const char*> kConstraints[] = {
    {SPECD_GRAMMAR_REGEX, "[a-c]{2,5}"},
    {SPECD_GRAMMAR_REGEX, "(ab|b)*\xC3\xA9?"},
    {SPECD_GRAMMAR_CHOICE, R"(["abcab", "abc", "bb", "é"])"},
    {SPECD_GRAMMAR_EBNF, "root ::= \"a\" root \"b\" | \"c\""},
    {SPECD_GRAMMAR_JSON, R"({"type": "object", "properties": {"a": {"enum": [1, 12]}},
                             "required": ["a"], "additionalProperties": false})"},
    {SPECD_GRAMMAR_JSON_OBJECT, nullptr},
};

TEST_SUITE("unit") {
  TEST_CASE("grammar: masks of a choice are those that comparing the strings gives") {
    const Tokenizer tokenizer = NewTokenizer();
    const Grammar grammar =
        Compile(tokenizer, SPECD_GRAMMAR_CHOICE, R"(["abcab", "abc", "bb", "é"])");
    const std::vector<std::string> choices = {"abcab", "abc", "bb", "\xC3\xA9"};
    std::vector<std::pair<std::string, Matcher>> open;
    open.emplace_back("", NewMatcher(grammar));
    size_t num_places = 0;
    while (!open.empty()) {
      const std::string text = open.back().first;
      const Matcher matcher = std::move(open.back().second);
      open.pop_back();
      ++num_places;
      const std::vector<int32_t> mask = MaskOf(matcher);
      const bool may_end = std::find(choices.begin(), choices.end(), text) != choices.end();
      CAPTURE(text);
      CHECK(specd_matcher_is_accepting(matcher.get()) == may_end);
      for (int32_t id = 0; id < static_cast<int32_t>(kNumWords * 32); ++id) {
        const auto index = static_cast<size_t>(id);
        bool expected = false;
        if (id == kGrammarEos || id == kStop) {
          expected = may_end;
        } else if (index < kTexts.size() && !kTexts[index].empty() && id != kPad) {
          const std::string next = text + kTexts[index];
          expected = std::any_of(choices.begin(), choices.end(), [&](const std::string& choice) {
            return choice.starts_with(next);
          });
          if (expected) {
            Matcher fork = Fork(matcher);
            REQUIRE(specd_matcher_accept(fork.get(), id) == 1);
            open.emplace_back(next, std::move(fork));
          }
        }
        CAPTURE(id);
        REQUIRE(Allows(mask, id) == expected);
      }
    }
    CHECK(num_places > 10);
  }

  TEST_CASE("grammar: a mask allows the ids that a fork accepts, whatever was taken back") {
    const Tokenizer tokenizer = NewTokenizer();
    std::mt19937 random(5);
    for (const auto& [kind, constraint] : kConstraints) {
      const char* const text = constraint;
      const Grammar grammar = Compile(tokenizer, kind, text);
      for (int walk = 0; walk < 5; ++walk) {
        const Matcher matcher = NewMatcher(grammar);
        std::vector<int32_t> history;
        for (int step = 0; step < 12; ++step) {
          std::vector<int32_t> accepted;
          for (int32_t id = -1; id < static_cast<int32_t>(kNumWords * 32); ++id) {
            if (specd_matcher_accept(Fork(matcher).get(), id) == 1) accepted.push_back(id);
          }
          CAPTURE(text);
          REQUIRE(AllowedIds(matcher) == accepted);
          const bool may_end =
              std::find(accepted.begin(), accepted.end(), kGrammarEos) != accepted.end();
          CHECK(specd_matcher_is_accepting(matcher.get()) == may_end);
          std::erase_if(accepted, [](int32_t id) { return id == kGrammarEos || id == kStop; });
          CHECK(specd_matcher_is_finished(matcher.get()) == (may_end && accepted.empty()));
          if (accepted.empty() || step % 5 == 4) {
            const uint64_t back = random() % (history.size() + 1);
            REQUIRE(specd_matcher_rollback(matcher.get(), back) == SPECD_OK);
            history.resize(history.size() - back);
          } else {
            history.push_back(accepted[random() % accepted.size()]);
            REQUIRE(specd_matcher_accept(matcher.get(), history.back()) == 1);
          }
          uint64_t num_accepted = 99;
          REQUIRE(specd_matcher_num_accepted(matcher.get(), &num_accepted) == SPECD_OK);
          REQUIRE(num_accepted == history.size());
          const Matcher replay = NewMatcher(grammar);
          for (const int32_t id : history) REQUIRE(specd_matcher_accept(replay.get(), id) == 1);
          REQUIRE(MaskOf(replay) == MaskOf(matcher));
        }
      }
    }
  }

  TEST_CASE("grammar: after a stop id a matcher allows stop ids alone, and can be rolled back") {
    const Tokenizer tokenizer = NewTokenizer();
    const Matcher matcher = NewMatcher(Compile(tokenizer, SPECD_GRAMMAR_REGEX, "a+"));
    CHECK(specd_matcher_accept(matcher.get(), kGrammarEos) == 0);
    REQUIRE(specd_matcher_accept(matcher.get(), 2) == 1);
    CHECK(specd_matcher_is_terminated(matcher.get()) == 0);
    REQUIRE(specd_matcher_accept(matcher.get(), kStop) == 1);
    CHECK(specd_matcher_is_terminated(matcher.get()) == 1);
    CHECK(AllowedIds(matcher) == std::vector<int32_t>{kGrammarEos, kStop});
    CHECK(specd_matcher_accept(matcher.get(), 2) == 0);
    REQUIRE(specd_matcher_rollback(matcher.get(), 1) == SPECD_OK);
    CHECK(specd_matcher_is_terminated(matcher.get()) == 0);
    CHECK(AllowedIds(matcher) == std::vector<int32_t>{kGrammarEos, kStop, 2, 23});
    // Without a stop id of its own, id 1 is a text again.
    CHECK(AllowedIds(NewMatcher(Compile(tokenizer, SPECD_GRAMMAR_REGEX, "b"), kNone)) ==
          std::vector<int32_t>{1, 3});
  }

  TEST_CASE("grammar: a fork and its origin go their own ways, and outlive what made them") {
    Tokenizer tokenizer = NewTokenizer();
    Grammar grammar = Compile(tokenizer, SPECD_GRAMMAR_CHOICE, R"(["abc", "ac"])");
    Matcher origin = NewMatcher(grammar);
    tokenizer.reset();
    grammar.reset();
    REQUIRE(specd_matcher_accept(origin.get(), 2) == 1);
    const Matcher fork = Fork(origin);
    REQUIRE(specd_matcher_accept(origin.get(), 4) == 1);
    CHECK(specd_matcher_is_finished(origin.get()) == 1);
    CHECK(AllowedIds(fork) == std::vector<int32_t>{3, 4});
    origin.reset();
    REQUIRE(specd_matcher_rollback(fork.get(), 1) == SPECD_OK);
    CHECK(AllowedIds(fork) == std::vector<int32_t>{2, 5, 6, 29});
  }

  TEST_CASE("grammar: forced text, and the tokens that spell it") {
    const Tokenizer tokenizer = NewTokenizer();
    const Matcher finite = NewMatcher(Compile(tokenizer, SPECD_GRAMMAR_CHOICE, R"(["abcaa"])"));
    CHECK(ForcedText(finite) == "abcaa");
    // "abcab" begins as the text does, but does not fit; "abc" is the longest that does.
    CHECK(ForcedTokens(finite) == std::vector<int32_t>{6, 23});
    CHECK(ForcedTokens(finite, 1) == std::vector<int32_t>{6});
    CHECK(ForcedTokens(finite, 0).empty());
    // "ab" may become "abc" or "abcab": nothing is sure.
    const Matcher open = NewMatcher(Compile(tokenizer, SPECD_GRAMMAR_REGEX, "ab[c1]1"));
    CHECK(ForcedText(open) == "ab");
    CHECK(ForcedTokens(open).empty());
    // Here a longer token cannot follow "ab".
    const Matcher closed = NewMatcher(Compile(tokenizer, SPECD_GRAMMAR_REGEX, "1ab[1:]"));
    CHECK(ForcedText(closed) == "1ab");
    CHECK(ForcedTokens(closed) == std::vector<int32_t>{16, 5});
    // The longer token is possible in the grammar, but the forced text has another end.
    const Matcher object = NewMatcher(
        Compile(tokenizer, SPECD_GRAMMAR_JSON,
                R"({"type": "object", "properties": {"a": {"enum": [1, 12]}}, "required": ["a"],
                    "additionalProperties": false})"));
    REQUIRE(specd_matcher_accept(object.get(), 9) == 1);   // {
    CHECK(ForcedText(object).empty());                     // whitespace is possible
    REQUIRE(specd_matcher_accept(object.get(), 11) == 1);  // "
    CHECK(ForcedText(object) == "a\"");
    CHECK(ForcedTokens(object) == std::vector<int32_t>{2});  // then `"` or `":`
    // Nothing has moved.
    uint64_t num_accepted = 0;
    REQUIRE(specd_matcher_num_accepted(object.get(), &num_accepted) == SPECD_OK);
    CHECK(num_accepted == 2);
  }

  TEST_CASE("grammar: a batch equals one by one, for any number of threads, order and stride") {
    const Tokenizer tokenizer = NewTokenizer();
    std::vector<Grammar> grammars;
    std::vector<Matcher> matchers;
    std::vector<specd_matcher*> pointers;
    std::mt19937 random(11);
    for (int i = 0; i < 60; ++i) {
      const auto& [kind, text] = kConstraints[static_cast<size_t>(i) % std::size(kConstraints)];
      grammars.push_back(Compile(tokenizer, kind, text));
      matchers.push_back(NewMatcher(grammars.back()));
      for (size_t step = random() % 5; step > 0; --step) {
        const std::vector<int32_t> ids = AllowedIds(matchers.back());
        specd_matcher_accept(matchers.back().get(), ids[random() % ids.size()]);
      }
      pointers.push_back(matchers.back().get());
    }
    std::vector<uint32_t> indices;
    for (uint32_t i = 0; i < 60; ++i) indices.push_back(99 - i);
    for (const uint32_t threads : {0u, 1u, 2u, 3u, 7u, 16u}) {
      CAPTURE(threads);
      std::vector<int32_t> words(100 * 5, 7);
      specd_mask_rows rows;
      specd_mask_rows_init(&rows);
      rows.threads = threads;
      rows.words = words.data();
      rows.num_rows = 100;
      rows.row_stride = 5;
      rows.indices = indices.data();
      REQUIRE(specd_fill_masks(pointers.data(), 60, &rows) == SPECD_OK);
      for (size_t i = 0; i < 60; ++i) {
        const std::vector<int32_t> expected = MaskOf(matchers[i]);
        const int32_t* row = words.data() + indices[i] * 5;
        REQUIRE(std::equal(expected.begin(), expected.end(), row));
        REQUIRE((row[3] == 7 && row[4] == 7));  // a gap is not written
      }
      CHECK(std::all_of(words.begin(), words.begin() + 40 * 5, [](int32_t w) { return w == 7; }));
      // Rows without gaps, in order.
      rows.row_stride = 0;
      rows.indices = nullptr;
      REQUIRE(specd_fill_masks(pointers.data(), 60, &rows) == SPECD_OK);
      for (size_t i = 0; i < 60; ++i) {
        REQUIRE(std::equal(words.begin() + i * 3, words.begin() + i * 3 + 3,
                           MaskOf(matchers[i]).begin()));
      }
    }
  }

  TEST_CASE("grammar: batches of one tokenizer from several threads at once") {
    const Tokenizer tokenizer = NewTokenizer();
    const Grammar grammar = Compile(tokenizer, SPECD_GRAMMAR_JSON_OBJECT, nullptr);
    const std::vector<int32_t> expected = MaskOf(NewMatcher(grammar));
    std::vector<std::thread> threads;
    std::vector<int> num_wrong(4);
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::vector<Matcher> matchers;
        std::vector<specd_matcher*> pointers;
        for (int i = 0; i < 20; ++i) {
          specd_matcher* matcher = nullptr;
          num_wrong[t] += specd_matcher_new(grammar.get(), {&kStop, 1}, &matcher) != SPECD_OK;
          matchers.emplace_back(matcher);
          pointers.push_back(matcher);
        }
        std::vector<int32_t> words(20 * kNumWords);
        specd_mask_rows rows;
        specd_mask_rows_init(&rows);
        rows.words = words.data();
        rows.num_rows = 20;
        rows.threads = 3;
        num_wrong[t] += specd_fill_masks(pointers.data(), 20, &rows) != SPECD_OK;
        for (size_t i = 0; i < 20; ++i) {
          num_wrong[t] += !std::equal(expected.begin(), expected.end(), &words[i * kNumWords]);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(num_wrong == std::vector<int>(4));
  }

  TEST_CASE("grammar: a tokenizer.json, by path and by its text") {
    specd_tokenizer_options options;
    specd_tokenizer_options_init(&options);
    options.path = SPECD_TOKENIZER;
    options.vocab_size = 1 << 16;
    specd_tokenizer* tokenizer = nullptr;
    REQUIRE_MESSAGE(specd_tokenizer_new(&options, &tokenizer) == SPECD_OK,
                    std::string(specd_last_error()));
    specd_tokenizer_free(tokenizer);

    std::string json = toy::TinyTokenizer{.merges = {{"a", "b"}}}.Json();
    json.replace(0, 1, R"({"version": "1.0", "decoder": {"type": "ByteLevel"}, )");
    options.path = nullptr;
    options.json = json.c_str();
    options.vocab_size = 258;
    REQUIRE_MESSAGE(specd_tokenizer_new(&options, &tokenizer) == SPECD_OK,
                    std::string(specd_last_error()));
    const Tokenizer owned(tokenizer);
    const Matcher matcher = NewMatcher(Compile(owned, SPECD_GRAMMAR_REGEX, "ab"), kNone);
    std::vector<int32_t> words(9);
    REQUIRE(specd_matcher_mask(matcher.get(), words.data(), 9) == SPECD_OK);
    for (int32_t id = 0; id < 288; ++id) CHECK(Allows(words, id) == (id == 'a' || id == 256));
    options.json_bytes = json.size() - 1;  // a length is taken as it is
    CHECK(specd_tokenizer_new(&options, &tokenizer) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(tokenizer == nullptr);
    CHECK(LastErrorHas("json"));
  }

  TEST_CASE("grammar: warnings name what lenient dropped, and info says the sizes") {
    const Tokenizer tokenizer = NewTokenizer();
    // The tokenizer has no bracket, so an array alone would have no text.
    specd_grammar_options options = GrammarOptions(
        SPECD_GRAMMAR_JSON, R"({"type": ["array", "integer"], "uniqueItems": true})");
    specd_grammar* grammar = nullptr;
    CHECK(specd_grammar_compile(tokenizer.get(), &options, &grammar) == SPECD_ERROR_UNSUPPORTED);
    CHECK(grammar == nullptr);
    CHECK(LastErrorHas("uniqueItems"));
    options.lenient = 1;
    REQUIRE(specd_grammar_compile(tokenizer.get(), &options, &grammar) == SPECD_OK);
    const Grammar owned(grammar);
    specd_grammar_info info = {};
    info.struct_size = sizeof(info);
    REQUIRE(specd_get_grammar_info(grammar, &info) == SPECD_OK);
    CHECK(info.vocab_size == kVocabSize);
    CHECK(info.num_mask_words == kNumWords);
    CHECK(info.size_bytes > 0);
    REQUIRE(info.warnings.count == 1);
    CHECK(std::string(info.warnings.items[0]).find("uniqueItems") != std::string::npos);
  }
}

}  // namespace
}  // namespace specd::test
