// Where a sequence ends (CONTRACT 7), against the definition read one token at a time: stop ids and
// EOS behind min_tokens, at one token before the length, and the token that finishes is kept.
#include "speculative/sequence/finish_rules.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("the cut does not depend on how tokens are grouped into rounds") {
    std::mt19937 random(11);
    const std::vector<TokenId> stops = {0};  // SGLang took it for none
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
        if ((stream[i] == 0 || stream[i] == 5) && number > rules.min_tokens)
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
      const bool is_stop = expected_reason == FinishReason::kStop;
      CHECK(walk.stop_token == (is_stop ? stream[expected - 1] : kNoToken));
    }
  }
}

}  // namespace
}  // namespace specd
