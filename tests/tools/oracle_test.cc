// The oracle against numbers that were computed by hand.
#include "tools/oracle/oracle.h"

#include <doctest/doctest.h>

#include <cmath>

namespace specd::oracle {
namespace {

// Probabilities .1, .4, .3, .2 at temperature 1, in the order of ids.
const Logits kRow = {std::log(0.1), std::log(0.4), std::log(0.3), std::log(0.2)};

Probabilities Kept(const Truncation& truncation, const Logits& row = kRow) {
  return *Distribution(row, {}, 1, truncation);
}

TEST_SUITE("unit") {
  TEST_CASE("the oracle: filters by hand") {
    CHECK(Kept({})[3] == doctest::Approx(0.2));
    CHECK(Argmax(kRow) == 1);

    CHECK(Kept({.top_k = 2})[1] == doctest::Approx(4.0 / 7));
    CHECK(Kept({.top_k = 2})[3] == 0);

    // .4 falls short of .65, .4 + .3 reaches it.
    CHECK(Kept({.top_p = 0.65})[2] == doctest::Approx(3.0 / 7));
    CHECK(Kept({.top_p = 0.65})[3] == 0);

    // .2 >= .45 * .4, .1 is not.
    CHECK(Kept({.min_p = 0.45})[3] == doctest::Approx(2.0 / 9));
    CHECK(Kept({.min_p = 0.45})[0] == 0);

    // top_p judges what top_k has left: .4 / .7 = .571 reaches .55.
    CHECK(Kept({.top_k = 2, .top_p = 0.55})[1] == 1);
  }

  TEST_CASE("the oracle: among equal logits the lower id stays") {
    const Probabilities kept = Kept({.top_k = 2}, {0, 1, 1, 1});
    CHECK(kept[1] == 0.5);
    CHECK(kept[2] == 0.5);
    CHECK(kept[3] == 0);
  }

  TEST_CASE("the oracle: a half temperature squares the odds") {
    CHECK((*Softmax(kRow, 0.5))[1] == doctest::Approx(0.16 / 0.30));
  }

  TEST_CASE("the oracle: masks and penalties change the row first") {
    const auto argmax = [](const Logits& row, std::vector<int> output) {
      return Argmax(*AfterSteps(row, {.mask = {true, true, true, false},
                                      .repetition = 2,
                                      .frequency = 0.5,
                                      .presence = 1,
                                      .prompt = {0, 77},
                                      .output = std::move(output)}));
    };
    // 5 / 2 - .5 - 1 = 1, 4 / 2 - 2 * .5 - 1 = 0; 9 is masked.
    CHECK(argmax({5, 0.75, 4, 9}, {0, 2, 2}) == 0);
    CHECK(argmax({5, 1.5, 4, 9}, {0, 2, 2}) == 1);
    // In the prompt alone, id 0 keeps 5 / 2.
    CHECK(argmax({5, 1.5, 4, 9}, {2, 2}) == 0);
    // A negative logit is multiplied: -1 * 2 is below -1.5.
    CHECK(argmax({-1, -1.5, -9, 9}, {2, 2}) == 1);
  }

  TEST_CASE("the oracle: a draw is the id whose part has the coin, or a neighbour at a border") {
    const Probabilities p = {0.25, 0, 0.5, 0.25};
    CHECK(IsDraw(p, 0, 0.1, 1e-6));
    CHECK_FALSE(IsDraw(p, 2, 0.1, 1e-6));
    CHECK(IsDraw(p, 2, 0.7, 1e-6));
    CHECK_FALSE(IsDraw(p, 1, 0.7, 1e-6));
    CHECK(IsDraw(p, 2, 0.75 + 5e-7, 1e-6));
    CHECK(IsDraw(p, 3, 0.75 + 5e-7, 1e-6));
    CHECK_FALSE(IsDraw(p, 2, 0.75 + 2e-6, 1e-6));
    CHECK_FALSE(IsDraw(p, -1, 0.1, 1e-6));
    CHECK_FALSE(IsDraw(p, 4, 0.99, 1e-6));
  }
}

}  // namespace
}  // namespace specd::oracle
