#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tools/bench/reference.h"

namespace specd::bench {
namespace {

RowView ViewOf(const std::vector<float>& row) {
  return {row.data(), DType::kFloat32, static_cast<int32_t>(row.size()), {}};
}

ReferenceRow Reference(const std::vector<float>& row, const VerifyCase& verify_case) {
  return ReferenceRow(ViewOf(row), verify_case, {}, nullptr, nullptr);
}

// Probabilities .1, .4, .3, .2 at temperature 1, in the order of ids.
const std::vector<float> kRow = {std::log(0.1f), std::log(0.4f), std::log(0.3f), std::log(0.2f)};

VerifyCase AtTemperatureOne() {
  VerifyCase verify_case;
  verify_case.temperature = 1;
  return verify_case;
}

TEST_SUITE("unit") {
  TEST_CASE("the reference: filters by hand") {
    VerifyCase plain = AtTemperatureOne();
    CHECK(Reference(kRow, plain).probability(3) == doctest::Approx(0.2));
    CHECK(Reference(kRow, plain).argmax() == 1);

    VerifyCase top_k = plain;
    top_k.top_k = 2;
    CHECK(Reference(kRow, top_k).probability(1) == doctest::Approx(4.0 / 7));
    CHECK(Reference(kRow, top_k).probability(3) == 0);

    // .4 falls short of .65, .4 + .3 reaches it.
    VerifyCase top_p = plain;
    top_p.top_p = 0.65;
    CHECK(Reference(kRow, top_p).probability(2) == doctest::Approx(3.0 / 7));
    CHECK(Reference(kRow, top_p).probability(3) == 0);

    // .2 >= .45 * .4, .1 is not.
    VerifyCase min_p = plain;
    min_p.min_p = 0.45;
    CHECK(Reference(kRow, min_p).probability(3) == doctest::Approx(2.0 / 9));
    CHECK(Reference(kRow, min_p).probability(0) == 0);

    // top_p judges what top_k has left: .4 / .7 = .571 reaches .55.
    VerifyCase both = top_k;
    both.top_p = 0.55;
    CHECK(Reference(kRow, both).probability(1) == 1);
  }

  TEST_CASE("the reference: among equal logits the lower id stays") {
    VerifyCase verify_case = AtTemperatureOne();
    verify_case.top_k = 2;
    const ReferenceRow row = Reference({0, 1, 1, 1}, verify_case);
    CHECK(row.probability(1) == 0.5);
    CHECK(row.probability(2) == 0.5);
    CHECK(row.probability(3) == 0);
  }

  TEST_CASE("the reference: a half temperature squares the odds") {
    VerifyCase verify_case;
    verify_case.temperature = 0.5;
    CHECK(Reference(kRow, verify_case).probability(1) == doctest::Approx(0.16 / 0.30));
  }

  TEST_CASE("the reference: masks and penalties change the row first") {
    const std::vector<TokenEdit> edits = {{.id = 0, .flags = kEditSeen},
                                          {.id = 2, .flags = kEditSeen, .count = 2}};
    const TokenEdit override_edit{.id = 0, .flags = kEditSeen, .count = 1};
    const SequenceEdits sequence{.edits = edits.data(),
                                 .num_edits = 2,
                                 .penalties = {.repetition = 2, .frequency = 0.5f, .presence = 1}};
    const PlaceEdits place{.overrides = &override_edit, .num_overrides = 1};
    const uint32_t mask = 0b0111;
    VerifyCase greedy;
    greedy.temperature = 0;
    const auto argmax = [&](const std::vector<float>& row, const PlaceEdits* edits_of_place) {
      return ReferenceRow(ViewOf(row), greedy, sequence, edits_of_place, &mask).argmax();
    };
    // 5 / 2 - .5 - 1 = 1, 4 / 2 - 2 * .5 - 1 = 0; 9 is masked.
    CHECK(argmax({5, 0.75f, 4, 9}, &place) == 0);
    CHECK(argmax({5, 1.5f, 4, 9}, &place) == 1);
    // Without the override id 0 keeps 5 / 2.
    CHECK(argmax({5, 1.5f, 4, 9}, nullptr) == 0);
    // A negative logit is multiplied: -1 * 2 is below -1.5.
    CHECK(argmax({-1, -1.5f, -9, 9}, nullptr) == 1);
  }

  TEST_CASE(
      "a draw is the id whose part of the mass holds the coin, or a neighbour near a border") {
    const std::vector<double> weights = {2, 0, 4, 2};
    CHECK(IsDraw(weights, 0, 0.1, 1e-6));
    CHECK_FALSE(IsDraw(weights, 2, 0.1, 1e-6));
    CHECK(IsDraw(weights, 2, 0.7, 1e-6));
    CHECK_FALSE(IsDraw(weights, 1, 0.7, 1e-6));
    CHECK(IsDraw(weights, 2, 0.75 + 5e-7, 1e-6));
    CHECK(IsDraw(weights, 3, 0.75 + 5e-7, 1e-6));
    CHECK_FALSE(IsDraw(weights, 2, 0.75 + 2e-6, 1e-6));
    CHECK_FALSE(IsDraw(weights, -1, 0.1, 1e-6));
    CHECK_FALSE(IsDraw(weights, 4, 0.99, 1e-6));
  }
}

}  // namespace
}  // namespace specd::bench
