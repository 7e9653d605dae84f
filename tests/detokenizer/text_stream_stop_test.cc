// Stop strings and withheld tokens: the cases that broke other servers, by the name of their issue.
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
  TEST_CASE("stop: the list order does not decide which stop string comes first (vLLM #49391)") {
    for (const auto& stops : {Released{"a", "is"}, Released{"is", "a"}}) {
      Driver driver(Plain({" The", " user", " is", " a"}), stops);
      driver.PushAll();
      REQUIRE(driver.stop.has_value());
      CHECK(stops[static_cast<size_t>(*driver.stop)] == "is");
      CHECK(driver.text == " The user ");

      Driver including(Plain({" The", " user", " is", " a"}), stops, {.include_stop = true});
      including.PushAll();
      CHECK(including.text == " The user is");
    }
  }

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

  TEST_CASE("stop: bytes pending behind the stop string are no replacement (osaurus #109)") {
    Driver driver(Plain({"yes", "END\xE4\xBD"}), {"END"});
    driver.PushAll();
    CHECK(driver.Finish().empty());
    CHECK(driver.text == "yes");
  }

  TEST_CASE("stop: a stop string split over tokens is cut whole") {
    Driver driver(Plain({"x abc", "ST", "OP y"}), {"abcSTOP"});
    CHECK(driver.PushAll() == Released{"x ", "", ""});
    CHECK(driver.stop == 0);
  }

  TEST_CASE("stop: an ill-formed byte inside breaks the stop string and releases it") {
    Driver driver(Plain({"abc", "\xFF", "STOP"}), {"abcSTOP"});
    CHECK(driver.PushAll() == Released{"", "abc\xEF\xBF\xBD", "STOP"});
    CHECK_FALSE(driver.stop.has_value());
  }

  TEST_CASE("stop: a held beginning is released when the text ends (llama.cpp #15007)") {
    Driver driver(Plain({"UNO ", "DUE ", "TRE"}), {"TRE\nAAAAAAAA"});
    CHECK(driver.PushAll() == Released{"UNO ", "DUE ", ""});
    CHECK(driver.Finish() == "TRE");
    CHECK(driver.stream.text_offset() == 11);
  }

  TEST_CASE("stop: held text and a pending code point end together in order") {
    Driver driver(Plain({"abST", "O\xE4"}), {"STOP"});
    CHECK(driver.PushAll() == Released{"ab", ""});
    CHECK(driver.Finish() == "STO\xEF\xBF\xBD");
  }

  TEST_CASE("stop: text before a stop string in the same token is delivered (llama.cpp #9867)") {
    Driver driver(Plain({"?\n"}), {"\n"});
    CHECK(driver.PushAll() == Released{"?"});
    CHECK(driver.stop == 0);
  }

  TEST_CASE("stop: the earliest end wins over the earliest in the list (Dynamo #14848)") {
    Driver driver(Plain({"there"}), {"re", "he"});
    driver.PushAll();
    CHECK(driver.text == "t");
    CHECK(driver.stop == 1);
  }

  TEST_CASE("stop: a stop string before EOS in one burst wins and ends the ids (vLLM #23938)") {
    for (const bool include_stop : {false, true}) {
      Driver driver({{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"Z", kSpecial}}, {"cd"},
                    {.include_stop = include_stop});
      driver.PushAll();
      CHECK(driver.text == (include_stop ? "abcd" : "ab"));
      CHECK(driver.stop == 0);
      CHECK(driver.num_kept == 4);
    }
  }

  TEST_CASE("stop: only what may become a stop string is held (smg #2203)") {
    Driver driver(Plain({"text <", "/an", "d>", " </answ", "er"}), {"</answer>"});
    CHECK(driver.PushAll() == Released{"text ", "", "</and>", " ", ""});
  }

  TEST_CASE("stop: a match that ends at a token's end needs no further token (TGI /test;)") {
    Driver driver(Plain({"/te", "st;", " "}), {"/test;"});
    CHECK(driver.PushAll() == Released{"", ""});
    CHECK(driver.stop == 0);
  }

  TEST_CASE("stop: a stop string as the very first text, and one longer than the text") {
    Driver first(Plain({"STOP", "x"}), {"STOP"});
    first.PushAll();
    CHECK(first.text.empty());
    CHECK(first.stop == 0);
    Driver longer(Plain({"ST"}), {std::string("ST") + std::string(10000, 'x')});
    longer.PushAll();
    CHECK(longer.Finish() == "ST");
  }

  TEST_CASE("stop: a stop string of several bytes a character never cuts a character") {
    Driver driver(Plain({"\xE4\xBD", "\xA0\xE5", "\xA5\xBD", "\xE5\xA5", "\xB3"}), {"好女"});
    CHECK(driver.PushAll() == Released{"", "你", "", "", ""});
    CHECK(driver.stop == 0);
    CHECK(driver.text == "你");
  }

  TEST_CASE("stop: a skipped special token's text is never matched; a kept one's is") {
    const std::vector<TestToken> tokens = {{"a"}, {"<end>", kSpecial}, {"b"}};
    Driver skipping(tokens, {"<end>"});
    skipping.PushAll();
    CHECK(skipping.text == "ab");
    CHECK_FALSE(skipping.stop.has_value());
    Driver keeping(tokens, {"<end>"}, {.skip_special_tokens = false});
    keeping.PushAll();
    CHECK(keeping.text == "a");
    CHECK(keeping.stop == 0);
  }

  TEST_CASE("stop: the reason stays the first stop string when the burst is pushed to its end") {
    Driver driver(Plain({"one. ", "two! "}), {"!", "."});
    TextChunk chunk;
    CHECK(driver.stream.Push(0, false, &chunk) == 1);
    CHECK_FALSE(driver.stream.Push(1, false, &chunk));
    CHECK(chunk.text == "one");
  }

  TEST_CASE("withheld: a stop id adds no text and releases what was held (SGLang, vLLM)") {
    Driver driver(Plain({"answer S", "TO", "<stop>"}), {"STOP"});
    TextChunk chunk;
    CHECK_FALSE(driver.stream.Push(0, false, &chunk));
    CHECK_FALSE(driver.stream.Push(1, false, &chunk));
    CHECK_FALSE(driver.stream.PushWithheld(2, false, &chunk));
    CHECK(chunk.text == "answer ");
    driver.stream.Finish(TextEnd::kFlush, &chunk);
    CHECK(chunk.text == "answer STO");
  }

  TEST_CASE("withheld: a withheld token does not complete a pending code point") {
    Driver driver(Plain({"\xE4\xBD", "\xA0 stop"}));
    TextChunk chunk;
    driver.stream.Push(0, false, &chunk);
    driver.stream.PushWithheld(1, false, &chunk);
    driver.stream.Finish(TextEnd::kFlush, &chunk);
    CHECK(chunk.text == "\xEF\xBF\xBD");
  }

  TEST_CASE("withheld: the text of a skipped special token is never matched") {
    for (const bool skip_special_tokens : {true, false}) {
      Driver driver({{"a"}, {"<end>", kSpecial}}, {"<end>"},
                    {.skip_special_tokens = skip_special_tokens});
      TextChunk chunk;
      driver.stream.Push(0, false, &chunk);
      CHECK(driver.stream.PushWithheld(1, false, &chunk).has_value() == !skip_special_tokens);
    }
  }

  TEST_CASE("withheld: a stop string completed by the stop id wins over it") {
    for (const bool include_stop : {false, true}) {
      Driver driver(Plain({"text", "a\n"}), {"\n"}, {.include_stop = include_stop});
      TextChunk chunk;
      driver.stream.Push(0, false, &chunk);
      CHECK(driver.stream.PushWithheld(1, true, &chunk) == 0);
      CHECK(chunk.text == (include_stop ? "texta\n" : "texta"));
      CHECK(chunk.spans.back() == TextSpan{include_stop ? size_t{2} : size_t{1}, true});
      CHECK(driver.stream.ended());
    }
  }
}

}  // namespace specd
