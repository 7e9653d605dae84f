// The expected pieces are the matches of GPT-2's published expression, worked out by hand. The
// oracle test (tests/oracle) compares with the tokenizers library on random text.
#include "tools/toy_engine/pre_tokenizer.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

namespace specd::toy {
namespace {

using Pieces = std::vector<std::string_view>;

TEST_SUITE("unit") {
  TEST_CASE("a word takes the one space before it") {
    CHECK(PreTokenize("The daemon verifies") == Pieces{"The", " daemon", " verifies"});
    CHECK(PreTokenize("") == Pieces{});
  }

  TEST_CASE("letters, digits and signs are pieces of their own") {
    CHECK(PreTokenize("abc123,(x)") == Pieces{"abc", "123", ",(", "x", ")"});
    CHECK(PreTokenize("a 12 --b") == Pieces{"a", " 12", " --", "b"});
  }

  TEST_CASE("English contractions, in lower case only") {
    for (std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      CHECK(PreTokenize("it" + std::string(ending) + "x") == Pieces{"it", ending, "x"});
    }
    CHECK(PreTokenize("IT'S") == Pieces{"IT", "'", "S"});
    // The apostrophe is already before the position at which the expression looks for 's.
    CHECK(PreTokenize("''s") == Pieces{"''", "s"});
  }

  TEST_CASE("white space gives its last character to the word behind it") {
    CHECK(PreTokenize("a   b") == Pieces{"a", "  ", " b"});
    CHECK(PreTokenize("a\n\nb") == Pieces{"a", "\n", "\n", "b"});
    CHECK(PreTokenize("a \t b") == Pieces{"a", " \t", " b"});
    CHECK(PreTokenize("a\tb") == Pieces{"a", "\t", "b"});
  }

  TEST_CASE("white space at the end stays together") {
    CHECK(PreTokenize("a  \n ") == Pieces{"a", "  \n "});
    CHECK(PreTokenize(" ") == Pieces{" "});
  }

  TEST_CASE("characters beyond ASCII") {
    CHECK(PreTokenize("Stra\u00dfe na\u00efve") == Pieces{"Stra\u00dfe", " na\u00efve"});
    CHECK(PreTokenize("a\u2192b \u2264 2\u00b2") ==
          Pieces{"a", "\u2192", "b", " \u2264", " 2\u00b2"});
    CHECK(PreTokenize("\u0434\u0430, \u6f22\u5b57\u3002") ==
          Pieces{"\u0434\u0430", ",", " \u6f22\u5b57", "\u3002"});
    CHECK(PreTokenize("a\u00a0\u3000b") == Pieces{"a", "\u00a0", "\u3000", "b"});
    CHECK(PreTokenize("ok \U0001f44b!") == Pieces{"ok", " \U0001f44b!"});
  }

  TEST_CASE("bytes that are not UTF-8 are kept") {
    const std::string text = "a\xff\xc3(\xe2\x82";
    std::string joined;
    for (std::string_view piece : PreTokenize(text)) joined += piece;
    CHECK(joined == text);
    CHECK(PreTokenize(text).front() == "a");
  }
}

}  // namespace
}  // namespace specd::toy
