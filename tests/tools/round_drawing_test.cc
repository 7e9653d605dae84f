#include "tools/toy_engine/round_drawing.h"

#include <doctest/doctest.h>

namespace specd::toy {
namespace {

std::string LetterOf(int32_t id) { return std::string(1, static_cast<char>('a' + id)); }

TEST_SUITE("unit") {
  TEST_CASE("a round as text: the path in brackets, and the token after it") {
    // a has b and c, and b has d; e follows the root too.
    DrawnRound round = {
        .tokens = {0, 1, 2, 3, 4}, .parents = {-1, 0, 0, 1, -1}, .path = {0, 1}, .last_token = 5};
    CHECK(DrawRound(round, LetterOf) ==
          "+- [\"a\"]\n"
          "|  +- [\"b\"]\n"
          "|  |  +- \"d\"\n"
          "|  |  `-> \"f\"\n"
          "|  `- \"c\"\n"
          "`- \"e\"\n");
    round.path = {};
    round.last_token = -1;
    round.parents = {};  // a chain
    CHECK(DrawRound(round, LetterOf) ==
          "`- \"a\"\n"
          "   `- \"b\"\n"
          "      `- \"c\"\n"
          "         `- \"d\"\n"
          "            `- \"e\"\n");
    CHECK(DrawRound({.last_token = 1}, LetterOf) == "`-> \"b\"\n");
  }
}

}  // namespace
}  // namespace specd::toy
