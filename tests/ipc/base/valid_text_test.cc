#include "ipc/base/valid_text.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "ipc/base/error.h"
#include "ipc/control/control.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  // The well-formed rows are those of the Unicode Standard 15.0, table 3-7, at their ends.
  TEST_CASE("valid text: UTF-8 stays as it is") {
    for (const std::string_view text :
         {std::string_view(""), std::string_view("a\nb\0c", 5), std::string_view("\x7f"),
          std::string_view("\xc2\x80"), std::string_view("\xdf\xbf"),
          std::string_view("\xe0\xa0\x80"), std::string_view("\xec\xbf\xbf"),
          std::string_view("\xed\x80\x80"), std::string_view("\xed\x9f\xbf"),
          std::string_view("\xee\x80\x80"), std::string_view("\xf0\x90\x80\x80"),
          std::string_view("\xf3\xbf\xbf\xbf"), std::string_view("\xf4\x8f\xbf\xbf")}) {
      CHECK(ValidText(text) == text);
    }
  }

  // The expected texts are what Python prints for bytes.decode(errors="backslashreplace").
  TEST_CASE("valid text: other bytes are escaped one by one") {
    CHECK(ValidText("a\xff\x62") == "a\\xffb");
    CHECK(ValidText("\x80") == "\\x80");
    CHECK(ValidText("\xc0\xaf") == "\\xc0\\xaf");           // longer than need be
    CHECK(ValidText("\xe0\x9f\xbf") == "\\xe0\\x9f\\xbf");  // the same
    CHECK(ValidText("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
    CHECK(ValidText("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
    CHECK(ValidText("\xf5\x80\x80\x80") == "\\xf5\\x80\\x80\\x80");
    CHECK(ValidText("\xe2\x82") == "\\xe2\\x82");  // cut off
    CHECK(ValidText("\xe2\x82\xc3\xa4") == "\\xe2\\x82\xc3\xa4");
  }

  TEST_CASE("valid text: a bound cuts no code point and no escape") {
    CHECK(ValidText("abc", 2) == "ab");
    CHECK(ValidText("ab\xc3\xa4", 3) == "ab");
    CHECK(ValidText("ab\xc3\xa4", 4) == "ab\xc3\xa4");
    CHECK(ValidText("a\xff", 4) == "a");
    CHECK(ValidText("a\xff", 5) == "a\\xff");
  }

  TEST_CASE("bug: an ErrorReply repeated bytes that are no UTF-8, and cut code points") {
    const ErrorReply reply =
        MakeErrorReply(MakeError(SPECD_ERROR_INVALID_ARGUMENT, "na\xfeme",
                                 "name = \"\xff\" " + std::string(2040, 'x') + "\xc3\xa4"));
    CHECK(reply.field == "na\\xfeme");
    CHECK(reply.text.starts_with("name = \"\\xff\" xxx"));
    CHECK(reply.text.size() <= 2048);
    CHECK(reply.text == ValidText(reply.text));
    const std::string warning = "a key \"\xe2\x82\"";
    CHECK(MakeReplyWarnings({&warning, 1})[0] == "a key \"\\xe2\\x82\"");
  }
}

}  // namespace
}  // namespace specd
