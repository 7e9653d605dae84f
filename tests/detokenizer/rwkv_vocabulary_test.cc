// Lines of RWKV's vocabulary. Python reads more literals in tests/oracle/sentence_piece_oracle.py.
#include "detokenizer/rwkv_vocabulary.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/detokenizer/format_files.h"

namespace specd {
namespace {

using namespace format_files;

TEST_SUITE("unit") {
  TEST_CASE("RWKV's vocabulary: both kinds of literals, and ids that the file lacks") {
    const Vocabulary read = Open(
        "1 '\\x00' 1\r\n2 b'\\xe4\\xbd' 2\n3 \"it's\" 4\n4 '\\'\"' 2\n\n"
        "5 '\\u200d\\U0001f600' 7\n6 '你 b' 5\n7 '\\xe9\\\\\\t' 4\n");
    CHECK_FALSE(read.Contains(0));
    CHECK(read.Bytes(1) == std::string(1, '\0'));
    CHECK(read.Bytes(2) == "\xE4\xBD");
    CHECK(read.Bytes(3) == "it's");
    CHECK(read.Bytes(4) == "'\"");
    CHECK(read.Bytes(5) == "\u200D😀");
    CHECK(read.Bytes(6) == "你 b");
    CHECK(read.Bytes(7) == "é\\\t");
  }

  TEST_CASE("RWKV's vocabulary: a wrong line is named by its number") {
    for (const char* line : {"2 'a'", "2 'a' 2", "2 a 1", "2 'a 1", "2 'a' x", "x 'a' 1",
                             "1048576 'a' 1", "2 '\\x0' 1", "2 '\\ud800' 3", "2 b'\\u0041' 1",
                             "2 b'é' 2", "2 '\\q' 2", "2 ''' 1", "2 u'a' 1", "2  1", "-1 'a' 1"}) {
      CAPTURE(line);
      CHECK(Mentions(ErrorOf("1 'a' 1\n" + std::string(line)), "line 2 is \""));
    }
    CHECK(Mentions(ErrorOf("1 'a' 1\n1 'b' 1"), "line 2 has the id 1, which an earlier line has"));
  }
}

}  // namespace
}  // namespace specd
