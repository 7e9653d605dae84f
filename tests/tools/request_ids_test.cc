// The limits are those of specd_open_sequence in specd/specd.h.
#include "tools/toy_engine/request_ids.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

namespace specd::toy {
namespace {

using Names = std::vector<std::string>;

TEST_SUITE("unit") {
  TEST_CASE("a prompt is its own name, and a repeated one is numbered") {
    CHECK(MakeRequestIds({"a", "b", "a", "a"}) == Names{"a", "b", "a (2)", "a (3)"});
    // A prompt may look like a numbered name.
    CHECK(MakeRequestIds({"a (2)", "a", "a"}) == Names{"a (2)", "a", "a (3)"});
  }

  TEST_CASE("names have at most 128 bytes and whole characters") {
    const std::string long_prompt(200, 'x');
    const Names names = MakeRequestIds({long_prompt, long_prompt});
    CHECK(names[0] == std::string(128, 'x'));
    CHECK(names[1] == std::string(124, 'x') + " (2)");
    // 127 bytes, then a character of two bytes.
    CHECK(MakeRequestIds({std::string(127, 'x') + "\u00e9"})[0] == std::string(127, 'x'));
  }

  TEST_CASE("control characters and broken UTF-8 become spaces, and no name is empty") {
    CHECK(MakeRequestIds({"a\nb\x7f\u0085\xff"}) == Names{"a b   "});
    const Names names = MakeRequestIds({"", ""});
    CHECK(std::set<std::string>(names.begin(), names.end()).size() == 2);
    for (const std::string& name : names) CHECK_FALSE(name.empty());
  }
}

}  // namespace
}  // namespace specd::toy
