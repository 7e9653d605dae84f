// Openings that are refused: constraints and thinking budgets that contradict each other, and
// constraints past an engine's share of the memory.
#include "speculative/sequence/sequence_opening.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "speculative/grammar/base/grammar_memory.h"
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

// A pattern of thousands of nodes, another for each number.
std::string LargeText(size_t number) {
  std::string text(number + 1, 'c');
  for (int i = 0; i < 3000; ++i) text += "(a|bb)";
  return text;
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

  TEST_CASE("one engine's constraints took the memory of all, and a small one was refused") {
    grammar::GrammarMemory& memory = grammar::GrammarMemory::OfProcess();
    const size_t bytes_max = memory.bytes_max();
    const absl::Cleanup restore = [&] { memory.Bound(bytes_max); };
    memory.Bound(memory.size_bytes() + (size_t{16} << 20));
    ConstrainedEngine greedy;
    ConstrainedEngine other;
    std::vector<Sequence> open;
    absl::Status refused;
    std::string text;
    while (refused.ok() && open.size() < 100) {
      text = LargeText(open.size());
      absl::StatusOr<Sequence> built =
          greedy.verifier().opening().Build(Constrained(GrammarKind::kRegex, text), {});
      refused = built.status();
      if (built.ok()) open.push_back(*std::move(built));
    }
    CHECK(open.size() > 2);
    CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
    CHECK(refused.message().find("grammar: the constraints of this engine's sequences take") == 0);
    CHECK(WhyRefused(other, Constrained(GrammarKind::kRegex, "[12]+")) == "");
    // Within the share, a constraint that the engine follows already costs nothing more.
    CHECK(WhyRefused(greedy, Constrained(GrammarKind::kRegex, LargeText(0))) == "");
    open.clear();
    CHECK(WhyRefused(greedy, Constrained(GrammarKind::kRegex, text)) == "");
  }
}

}  // namespace
}  // namespace specd
