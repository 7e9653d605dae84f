// Constraints and thinking budgets that contradict each other are refused when a sequence is
// opened.
#include "speculative/sequence_opening.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/speculative/constrained_engine.h"

namespace specd {
namespace {

SequenceParams WithBudget(int64_t budget, const Ids& end_ids) {
  SequenceParams params = Constrained(GrammarKind::kRegex, "ab");
  params.thinking = {budget, IdOf("("), end_ids, kNoToken};
  return params;
}

std::string WhyRefused(ConstrainedEngine& engine, const SequenceParams& params) {
  const auto info = engine.verifier().Open(params, {});
  if (!info.ok()) return std::string(info.status().message());
  REQUIRE(engine.verifier().Close(info->handle));
  return "";
}

TEST_SUITE("unit") {
  TEST_CASE("the ids that end a thought must spell the marker after which a constraint begins") {
    ConstrainedEngine engine("1)");
    for (const int64_t budget : {0, 1, 9}) {
      CAPTURE(budget);
      CHECK(WhyRefused(engine, WithBudget(budget, {IdOf("1"), IdOf(")")})) == "");
      for (const Ids& end_ids : {Ids{IdOf(")")}, Ids{IdOf("1"), IdOf("b)")}}) {
        CHECK(WhyRefused(engine, WithBudget(budget, end_ids))
                  .starts_with("thinking_end_ids: their text is not the model's reasoning_end"));
      }
    }
  }

  TEST_CASE("a thinking budget and a constraint that holds from the start are refused together") {
    for (const bool has_marker : {false, true}) {
      ConstrainedEngine engine(has_marker ? ")" : "");
      for (const int64_t budget : {0, 1, 9}) {
        CAPTURE(budget);
        SequenceParams params = WithBudget(budget, {IdOf(")")});
        params.grammar_in_reasoning = has_marker;
        CHECK(WhyRefused(engine, params).starts_with("thinking_budget: its forced tokens would"));
      }
      SequenceParams params = Constrained(GrammarKind::kRegex, "ab");
      params.grammar_in_reasoning = has_marker;
      CHECK(WhyRefused(engine, params) == "");
    }
  }
}

}  // namespace
}  // namespace specd
