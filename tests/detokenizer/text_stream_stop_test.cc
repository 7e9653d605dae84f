// Stop strings and min_tokens, and what comes behind a stop. Random stop strings, withheld tokens
// and splits are in text_stream_test.cc, and when a held text is released in stop_pattern_test.cc.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "detokenizer/text_stream.h"
#include "tests/detokenizer/stream_driver.h"

namespace specd {
namespace {

using Released = std::vector<std::string>;

constexpr TokenFlags kSpecial{.added = true, .special = true};

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("stop: the text is cut before the stop string or after it (vLLM)") {
    Driver driver(Plain({"hello", " world."}), {"."});
    driver.PushAll();
    CHECK(driver.text == "hello world");
    Driver including(Plain({"hello", " world."}), {"."}, {.include_stop = true});
    including.PushAll();
    CHECK(including.text == "hello world.");
  }

  TEST_CASE("stop: nothing after the stop string leaks (SGLang answerENDtail)") {
    Driver driver(Plain({"answer", "ENDtail", "more"}), {"END"}, {.include_stop = true});
    driver.PushAll();
    CHECK(driver.text == "answerEND");
    TextChunk late;
    CHECK_FALSE(driver.stream.Push(2, false, &late));
    driver.stream.Finish(TextEnd::kFlush, &late);
    CHECK(late.text.empty());
    CHECK(driver.stream.text_offset() == 9);
  }

  TEST_CASE("stop: one that completes within min_tokens is text, and may be part of a later one") {
    Driver driver(Plain({"END", "x", "EN", "D"}), {"END"}, {.min_tokens = 3});
    CHECK(driver.PushAll() == Released{"END", "x", "", ""});
    CHECK(driver.num_kept == 4);
    CHECK(driver.stop == 0);
    CHECK(driver.text == "ENDx");

    Driver never(Plain({"a", "END"}), {"END"}, {.min_tokens = 2});
    CHECK(never.PushAll() == Released{"a", "END"});
    CHECK_FALSE(never.stop.has_value());

    // A token without text is a token.
    Driver skipped({{"<s>", kSpecial}, {"END"}}, {"END"}, {.min_tokens = 1});
    skipped.PushAll();
    CHECK(skipped.stop == 0);

    // "ab" did not count; it still begins "abc".
    Driver longer(Plain({"ab", "c"}), {"ab", "abc"}, {.min_tokens = 1});
    CHECK(longer.PushAll() == Released{"", ""});
    CHECK(longer.stop == 1);
  }

  TEST_CASE("stop: a withheld stop id's text counts from min_tokens on too") {
    for (const uint64_t min_tokens : {0, 1, 2}) {
      Driver driver(Plain({"x", "END"}), {"END"}, {.min_tokens = min_tokens});
      TextChunk chunk;
      CHECK_FALSE(driver.stream.Push(0, false, &chunk));
      CHECK(driver.stream.PushWithheld(1, false, &chunk).has_value() == (min_tokens < 2));
    }
  }

  TEST_CASE("stop: the reason stays the first stop string when the burst is pushed to its end") {
    Driver driver(Plain({"one. ", "two! "}), {"!", "."});
    TextChunk chunk;
    CHECK(driver.stream.Push(0, false, &chunk) == 1);
    CHECK_FALSE(driver.stream.Push(1, false, &chunk));
    CHECK(chunk.text == "one");
  }
}

}  // namespace specd
