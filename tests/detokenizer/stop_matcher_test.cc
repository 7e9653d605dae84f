#include "detokenizer/stop_matcher.h"

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/detokenizer/reference_text.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

std::shared_ptr<const StopSet> Make(std::vector<std::string> strings) {
  auto stops = StopSet::Create(std::move(strings));
  REQUIRE(stops.ok());
  return *stops;
}

// Feeds `text` in random pieces and compares the match, and after every piece the held size, with
// the brute-force answer.
void CompareWithBruteForce(const std::vector<std::string>& strings, const std::string& text,
                           std::mt19937_64& random) {
  const std::shared_ptr<const StopSet> stops = Make(strings);
  const std::optional<reference::FoundStop> expected = reference::FindFirstStop(text, strings);
  StopState state;
  size_t fed = 0;
  while (fed < text.size()) {
    const std::string piece = text.substr(fed, 1 + random() % 7);
    const std::optional<StopMatch> match = stops->Advance(&state, piece);
    if (match) {
      REQUIRE(expected.has_value());
      REQUIRE(match->index == expected->index);
      REQUIRE(fed + match->end == expected->end);
      REQUIRE(match->size_bytes == expected->end - expected->begin);
      return;
    }
    fed += piece.size();
    REQUIRE(stops->HeldSizeBytes(state) ==
            reference::HeldSizeBytes(std::string_view(text).substr(0, fed), strings));
  }
  REQUIRE_FALSE(expected.has_value());
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("stop matcher: random lists and texts over a small alphabet equal brute force") {
    constexpr uint64_t kSeed = 71077345;
    // Few symbols, one of them of two bytes and one that shares its first byte, make prefixes,
    // suffixes and ties abound.
    const std::vector<std::string> alphabet = {"a", "b", "é", "è"};
    for (uint64_t round = 0; round < 40000; ++round) {
      std::mt19937_64 random(kSeed + round);
      INFO("seed ", kSeed + round);
      const size_t num_symbols = 2 + random() % 3;
      const auto draw = [&](size_t length) {
        std::string text;
        for (size_t i = 0; i < length; ++i) text += alphabet[random() % num_symbols];
        return text;
      };
      std::vector<std::string> strings(1 + random() % 6);
      for (std::string& string : strings) string = draw(1 + random() % 6);
      CompareWithBruteForce(strings, draw(random() % 40), random);
    }
  }

  TEST_CASE("stop matcher: a list of 1024 strings with shared prefixes equals brute force") {
    constexpr uint64_t kSeed = 1024;
    INFO("seed ", kSeed);
    std::mt19937_64 random(kSeed);
    std::vector<std::string> strings;
    while (strings.size() < StopSet::kStringsMax) {
      std::string string = "<|";
      for (size_t i = 0; i < 6; ++i) string += static_cast<char>('a' + random() % 2);
      strings.push_back(string + std::to_string(strings.size()));
    }
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (size_t i = 0; i < 20; ++i) {
        const std::string& string = strings[random() % strings.size()];
        text += string.substr(0, random() % string.size());
      }
      if (round % 2 == 0) text += strings[random() % strings.size()] + "tail";
      CompareWithBruteForce(strings, text, random);
    }
  }

  TEST_CASE("stop matcher: a string of 10000 bytes is found after near misses") {
    const std::string near(9999, 'a');
    const std::shared_ptr<const StopSet> stops = Make({near + "b"});
    StopState state;
    CHECK_FALSE(stops->Advance(&state, near + "c"));
    CHECK(stops->HeldSizeBytes(state) == 0);
    CHECK_FALSE(stops->Advance(&state, near + "aaa"));
    CHECK(stops->HeldSizeBytes(state) == 9999);
    const std::optional<StopMatch> match = stops->Advance(&state, "b!");
    REQUIRE(match.has_value());
    CHECK(match->end == 1);
    CHECK(match->size_bytes == 10000);
  }

  TEST_CASE("stop matcher: an empty string is refused with its index (vLLM)") {
    const auto stops = StopSet::Create({"a", ""});
    REQUIRE(stops.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(Mentions(stops.status(), "stop[1]"));
    CHECK(Mentions(stops.status(), "empty"));
    CHECK(Mentions(stops.status(), "remove this entry"));
  }

  TEST_CASE("stop matcher: ill-formed and truncated UTF-8 is refused with its index") {
    for (const char* bad : {"\xFF", "ok\xE4\xBD", "\xED\xA0\x80", "\xC0\xAF"}) {
      const auto stops = StopSet::Create({"fine", "你", bad});
      REQUIRE(stops.status().code() == absl::StatusCode::kInvalidArgument);
      CHECK(Mentions(stops.status(), "stop[2]"));
      CHECK(Mentions(stops.status(), "UTF-8"));
    }
    CHECK(StopSet::Create({"\xEF\xBF\xBD"}).ok());  // a U+FFFD that was sent is valid
  }

  TEST_CASE("stop matcher: a list past its limits is refused with the limit") {
    CHECK(StopSet::Create(std::vector<std::string>(1024, "x")).ok());
    const auto too_many = StopSet::Create(std::vector<std::string>(1025, "x"));
    REQUIRE(too_many.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(Mentions(too_many.status(), "1025"));
    CHECK(Mentions(too_many.status(), "0..1024"));

    CHECK(StopSet::Create({std::string(65000, 'x'), std::string(536, 'x')}).ok());
    const auto too_long = StopSet::Create({std::string(65000, 'x'), std::string(537, 'x')});
    REQUIRE(too_long.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(Mentions(too_long.status(), "65537"));
    CHECK(Mentions(too_long.status(), "0..65536"));
  }

  TEST_CASE("stop matcher: an empty list holds nothing back and never matches") {
    const std::shared_ptr<const StopSet> stops = Make({});
    StopState state;
    CHECK_FALSE(stops->Advance(&state, "any text"));
    CHECK(stops->HeldSizeBytes(state) == 0);
  }
}

}  // namespace specd
