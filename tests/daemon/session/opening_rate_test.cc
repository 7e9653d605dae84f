// The rate of openings: what one engine may open in a second, and what is free.
#include "daemon/session/opening_rate.h"

#include <doctest/doctest.h>

#include <string>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr int64_t kMs = 1'000'000;

// Opens one by one at this time until it is refused; returns how many there were.
int OpenUntilRefused(OpeningRate* rate, int64_t now_ns) {
  int count = 0;
  while (count < 1000 && rate->Check(now_ns, false).ok()) {
    rate->Count({.sequences = 1}, now_ns);
    ++count;
  }
  return count;
}

TEST_SUITE("unit") {
  // Ten a second is one in 100 ms, and ten may be saved up.
  TEST_CASE("opening rate: a second's worth at once, then one for each part of a second") {
    OpeningRate rate({.per_second = 10});
    const int64_t start = 5'000 * kMs;
    CHECK(OpenUntilRefused(&rate, start) == 10);
    CHECK(OpenUntilRefused(&rate, start + 99 * kMs) == 0);
    CHECK(OpenUntilRefused(&rate, start + 100 * kMs) == 1);
    CHECK(OpenUntilRefused(&rate, start + 450 * kMs) == 3);
    // A pause saves up no more than a second's worth.
    CHECK(OpenUntilRefused(&rate, start + 60'000 * kMs) == 10);
    CHECK(rate.num_opened() == 24);
  }

  TEST_CASE("opening rate: the refusal names the flag, the rate, the count and the wait") {
    OpeningRate rate({.per_second = 10});
    OpenUntilRefused(&rate, 0);
    const absl::Status refused = rate.Check(30 * kMs, false);
    CHECK(ErrorCodeOf(refused) == SPECD_ERROR_EXHAUSTED);
    CHECK(ErrorFieldOf(refused) == "session_openings_per_second");
    const std::string text(refused.message());
    CAPTURE(text);
    for (const char* const part : {"opened 10 sequences", "the 10 in a second", "in 71 ms"}) {
      CHECK(text.find(part) != std::string::npos);
    }
    CHECK(rate.Check(101 * kMs, false).ok());
  }

  // A message with more sequences than a second's worth could never be sent otherwise.
  TEST_CASE("opening rate: a batch may be larger than a second's worth, and is paid for after it") {
    OpeningRate rate({.per_second = 10});
    rate.Count({.sequences = 35}, 0);
    CHECK(OpenUntilRefused(&rate, 2'599 * kMs) == 0);
    CHECK(OpenUntilRefused(&rate, 2'600 * kMs) == 1);
  }

  TEST_CASE("opening rate: sequences that come from another daemon are free") {
    OpeningRate rate({.per_second = 10, .num_free = 100});
    for (int i = 0; i < 4; ++i) {
      CHECK(rate.Check(0, true).ok());
      rate.Count({.sequences = 25, .resumed = 25}, 0);
    }
    CHECK(OpenUntilRefused(&rate, 0) == 10);
    CHECK_FALSE(rate.Check(0, true).ok());  // none is free any more
    // A batch that is free in part is paid for the rest.
    OpeningRate other({.per_second = 10, .num_free = 3});
    other.Count({.sequences = 8, .resumed = 8}, 0);
    CHECK(OpenUntilRefused(&other, 0) == 5);
  }

  // Bug: an engine that had come from another daemon opened max_sequences new ones at once.
  TEST_CASE("opening rate: new sequences of an engine from another daemon are not free") {
    OpeningRate rate({.per_second = 10, .num_free = 100});
    CHECK(OpenUntilRefused(&rate, 0) == 10);
    CHECK(rate.Check(0, true).ok());
    rate.Count({.sequences = 4, .resumed = 1}, 0);
    CHECK(OpenUntilRefused(&rate, 300 * kMs) == 0);
    CHECK(OpenUntilRefused(&rate, 400 * kMs) == 1);
  }

  TEST_CASE("opening rate: without a bound nothing is refused, and all is counted") {
    OpeningRate rate({});
    CHECK(OpenUntilRefused(&rate, 0) == 1000);
    CHECK(rate.num_opened() == 1000);
  }
}

}  // namespace
}  // namespace specd
