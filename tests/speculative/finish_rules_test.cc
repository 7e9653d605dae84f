#include "speculative/sequence/finish_rules.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

namespace specd {
namespace {

FinishWalk Walk(const FinishRules& rules, int64_t kept_before, std::vector<TokenId> tokens) {
  return WalkFinishRules(rules, kept_before, tokens);
}

TEST_SUITE("unit") {
  TEST_CASE("a token that finishes is kept and counted, what follows is not") {
    const std::vector<TokenId> stops = {7};
    const FinishRules rules{stops, {}, 0, 100};
    const FinishWalk walk = Walk(rules, 0, {3, 7, 4, 5});
    CHECK(walk.num_kept == 2);
    CHECK(walk.reason == FinishReason::kStop);
    CHECK(walk.stop_token == 7);
  }

  TEST_CASE("length is counted from the tokens kept before") {
    const FinishRules rules{{}, {}, 0, 5};
    CHECK(Walk(rules, 3, {1, 2, 3}).num_kept == 2);
    CHECK(Walk(rules, 3, {1, 2, 3}).reason == FinishReason::kLength);
    CHECK(Walk(rules, 3, {1}).reason == FinishReason::kNone);
    CHECK(Walk(rules, 4, {1}).reason == FinishReason::kLength);
  }

  TEST_CASE("at one token a stop id outranks the length (CONTRACT 7)") {
    const std::vector<TokenId> stops = {9};
    const FinishRules rules{stops, {}, 0, 2};
    const FinishWalk walk = Walk(rules, 0, {1, 9});
    CHECK(walk.reason == FinishReason::kStop);
    CHECK(walk.num_kept == 2);
  }

  TEST_CASE("a stop beyond the length does not exist (SGLang finish priority)") {
    const std::vector<TokenId> stops = {9};
    const FinishRules rules{stops, {}, 0, 2};
    const FinishWalk walk = Walk(rules, 0, {1, 2, 9});
    CHECK(walk.reason == FinishReason::kLength);
    CHECK(walk.stop_token == kNoToken);
  }

  TEST_CASE("stop id 0 works (SGLang: the falsy id)") {
    const std::vector<TokenId> eos = {0};
    const FinishRules rules{{}, eos, 0, 100};
    const FinishWalk walk = Walk(rules, 0, {4, 0, 4});
    CHECK(walk.num_kept == 2);
    CHECK(walk.stop_token == 0);
  }

  TEST_CASE("token number n may finish by stop or EOS only if n > min_tokens (CONTRACT 7)") {
    const std::vector<TokenId> stops = {2};
    const std::vector<TokenId> eos = {5};
    const FinishRules rules{stops, eos, 3, 100};
    CHECK(Walk(rules, 0, {2, 5, 2}).reason == FinishReason::kNone);
    CHECK(Walk(rules, 0, {2, 5, 2, 5}).num_kept == 4);
    CHECK(Walk(rules, 3, {2}).reason == FinishReason::kStop);
    CHECK(Walk(rules, 2, {2, 2}).num_kept == 2);
    const FinishRules short_rules{stops, eos, 3, 3};
    CHECK(Walk(short_rules, 2, {2}).reason == FinishReason::kLength);
  }

  TEST_CASE("the cut does not depend on how tokens are grouped into rounds") {
    std::mt19937 random(11);
    const std::vector<TokenId> stops = {2};
    const std::vector<TokenId> eos = {5};
    for (int trial = 0; trial < 2000; ++trial) {
      std::vector<TokenId> stream(12);
      for (TokenId& id : stream) id = static_cast<TokenId>(random() % 12);
      const FinishRules rules{stops, eos, static_cast<int64_t>(random() % 5),
                              1 + static_cast<int64_t>(random() % 14)};

      // Brute force, one token at a time from the definition.
      size_t expected = stream.size();
      FinishReason expected_reason = FinishReason::kNone;
      for (size_t i = 0; i < stream.size() && expected_reason == FinishReason::kNone; ++i) {
        const auto number = static_cast<int64_t>(i) + 1;
        if ((stream[i] == 2 || stream[i] == 5) && number > rules.min_tokens)
          expected_reason = FinishReason::kStop;
        else if (number == rules.max_tokens)
          expected_reason = FinishReason::kLength;
        if (expected_reason != FinishReason::kNone) expected = i + 1;
      }

      size_t kept = 0;
      size_t at = 0;
      FinishWalk walk;
      while (at < stream.size() && walk.reason == FinishReason::kNone) {
        const size_t size = std::min<size_t>(1 + random() % 4, stream.size() - at);
        walk = WalkFinishRules(rules, static_cast<int64_t>(kept), {stream.data() + at, size});
        kept += static_cast<size_t>(walk.num_kept);
        at += size;
      }
      CHECK(kept == expected);
      CHECK(walk.reason == expected_reason);
    }
  }
}

}  // namespace
}  // namespace specd
