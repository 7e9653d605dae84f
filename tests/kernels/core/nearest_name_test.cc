#include "kernels/core/nearest_name.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace specd {
namespace {

using Names = std::vector<std::string_view>;

TEST_SUITE("unit") {
  // A name of n characters has a nearest name that is at most n / 2 changes away.
  TEST_CASE("names are compared by the fewest characters to insert, delete or replace") {
    CHECK(NearestName("sunday", Names{"saturday"}) == "saturday");  // 3 changes
    CHECK(NearestName("kitten", Names{"sitting"}) == "sitting");    // 3 changes
    CHECK(NearestName("abcd", Names{"abcdxy"}) == "abcdxy");
    CHECK(NearestName("abcd", Names{"abcdxyz"}).empty());
    CHECK(NearestName("abcd", Names{"xyabcd"}) == "xyabcd");
    CHECK(NearestName("abcd", Names{"xyzabcd"}).empty());
    CHECK(NearestName("abcdxy", Names{"abc"}) == "abc");
    CHECK(NearestName("abcdxyz", Names{"abc"}).empty());
    CHECK(NearestName("xyabcd", Names{"bcd"}) == "bcd");
    CHECK(NearestName("xyzabcd", Names{"bcd"}).empty());
    CHECK(NearestName("abcd", Names{"abxy"}) == "abxy");
    CHECK(NearestName("abcd", Names{"axyz"}).empty());
    CHECK(NearestName("abcd", Names{"bcda"}) == "bcda");  // 2 changes, though all four differ
  }

  TEST_CASE("the nearest name is the first of those with the fewest changes") {
    CHECK(NearestName("abcd", Names{"abxy", "abcx", "abcy"}) == "abcx");
    CHECK(NearestName("abcd", Names{"abcx", "abcd"}) == "abcd");
    CHECK(NearestName("abcd", Names{}).empty());
    CHECK(NearestName("", Names{"a"}).empty());
    CHECK(DidYouMean("abcd", Names{"abxy", "abcx"}) == "; did you mean abcx?");
    CHECK(DidYouMean("abcd", Names{"wxyz"}).empty());
  }

  TEST_CASE("no known name is near a name of more bytes than the limit") {
    const std::string longest(kNearNameBytesMax, 'a');
    const std::string longer(kNearNameBytesMax + 1, 'a');
    CHECK(NearestName(longest, Names{longest}) == longest);
    CHECK(NearestName(longer, Names{longer}).empty());
  }
}

}  // namespace
}  // namespace specd
