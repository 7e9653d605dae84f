// Rounds of sequences whose constraint begins after the end of the model's reasoning.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/speculative/constrained_texts.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE(
      "vLLM pull 44297: a marker inside a draft constrains the places behind it, in one round") {
    ConstrainedEngine engine(")");  // the model's thoughts end at the first ")"
    SequenceParams params = Constrained(GrammarKind::kRegex, "[ab]+12");
    params.temperature = 0;
    for (int split = 0; split < 2; ++split) {
      const SequenceHandle sequence = engine.Open(params);
      // Free text, the marker, and then what the constraint forbids. "b)" has the marker inside.
      const Ids drafts = {IdOf("1"), split == 0 ? IdOf(")") : IdOf("b)"), IdOf("c"), IdOf("c"),
                          kEos};
      engine.Want(drafts);
      const SequenceResult result = engine.RoundOverRows(sequence, drafts);
      REQUIRE(result.status == RoundStatus::kOk);
      CHECK(result.num_accepted == 2);
      REQUIRE(result.num_kept == 3);
      CHECK(result.tokens[2] == IdOf("a"));  // the lowest id that the constraint allows
      REQUIRE(engine.verifier().Close(sequence));
    }
    // enable_in_reasoning: the constraint holds at once.
    params.grammar_in_reasoning = true;
    const SequenceHandle sequence = engine.Open(params);
    const Ids drafts = {IdOf("1")};
    engine.Want(drafts);
    CHECK(engine.RoundOverRows(sequence, drafts).num_accepted == 0);
  }

  TEST_CASE("vLLM pull 36138: every row behind the marker in a draft window is constrained") {
    // The target wants what the constraint forbids at every place behind the marker. Drafts that
    // obey the constraint there are accepted; the row of the last place is constrained too.
    ConstrainedEngine engine(")");
    SequenceParams params = Constrained(GrammarKind::kRegex, "ab12\\+");
    params.temperature = 0;
    const TokenId forbidden = IdOf("c");
    const Ids obeying = {IdOf("a"), IdOf("b"), IdOf("1"), IdOf("2"), IdOf("+")};
    for (size_t marker = 0; marker < kDraft; ++marker) {
      for (const bool from_prompt : {false, true}) {
        CAPTURE(marker);
        CAPTURE(from_prompt);
        // The marker at each place of the window: free text before it, the constraint behind it.
        Ids drafts(marker, forbidden);
        drafts.push_back(IdOf(")"));
        for (size_t i = 0; drafts.size() < kDraft; ++i) drafts.push_back(obeying[i]);
        const SequenceHandle sequence =
            engine.Open(params, from_prompt ? Ids{forbidden, forbidden} : Ids{});
        engine.Want(drafts);
        for (size_t place = marker + 1; place <= kDraft; ++place) {
          float* const row = &engine.logits()[place * kVocab];
          std::fill_n(row, kVocab, 0.0f);
          row[forbidden] = 9;
        }
        const SequenceResult result = engine.RoundOverRows(sequence, drafts);
        REQUIRE(result.status == RoundStatus::kOk);
        CHECK(result.num_accepted == kDraft);
        Ids expected = drafts;
        expected.push_back(obeying[kDraft - 1 - marker]);
        CHECK(Kept(result) == expected);
        REQUIRE(engine.verifier().Close(sequence));
      }
    }
  }

  TEST_CASE(
      "with a gate, too: one text for every draft, and it obeys the constraint after the marker") {
    ConstrainedEngine engine(")");
    uint32_t num_behind = 0;
    for (const Constraint& constraint : kConstraints) {
      for (int trial = 0; trial < 15; ++trial) {
        SequenceParams params = Constrained(constraint.kind, constraint.text);
        params.seed = static_cast<uint64_t>(trial);
        params.ignore_eos = true;
        params.verify = VerifyMethod::kExactMatch;
        const Text plain = Generate(engine, params, nullptr, 0, DraftKind::kOneHot, 0);
        const std::string text = TextOf(plain.ids);
        const size_t marker = text.find(')');
        if (marker != std::string::npos) {
          const grammar::GrammarRules rules = RulesOf(constraint);
          CAPTURE(text);
          REQUIRE(grammar::GrammarReference(rules).IsPrefix(text.substr(marker + 1)));
          ++num_behind;
        }
        const Text drafted = Generate(engine, params, &plain, kDraft, DraftKind::kOneHot,
                                      static_cast<uint32_t>(trial));
        REQUIRE(drafted.ids == plain.ids);
        REQUIRE(drafted.reason == plain.reason);
      }
    }
    CHECK(num_behind > 30);
  }

  TEST_CASE("killed and opened again from its ids, a sequence goes on behind its gate") {
    ConstrainedEngine engine(")");
    uint32_t num_in_thought = 0;
    uint32_t num_behind = 0;
    uint32_t num_refused = 0;
    for (const Constraint& constraint : kConstraints) {
      for (uint64_t seed = 0; seed < 6; ++seed) {
        SequenceParams params = Constrained(constraint.kind, constraint.text);
        params.seed = seed;
        params.ignore_eos = true;
        const Text whole = Generate(engine, params, nullptr, 0, DraftKind::kOneHot, 0);
        for (size_t cut = 1; cut < whole.ids.size(); ++cut) {
          Ids ids(whole.ids.begin(), whole.ids.begin() + static_cast<int64_t>(cut));
          const bool is_thought = TextOf(ids).find(')') == std::string::npos;
          ++(is_thought ? num_in_thought : num_behind);
          const SequenceHandle sequence = engine.Open(params, ids);
          for (FinishReason reason = FinishReason::kNone; reason == FinishReason::kNone;) {
            const SequenceResult result = engine.Round(sequence, ids, {});
            REQUIRE(result.status == RoundStatus::kOk);
            for (const TokenId id : Kept(result)) ids.push_back(id);
            reason = result.finish_reason;
          }
          CAPTURE(constraint.text);
          CAPTURE(cut);
          REQUIRE(ids == whole.ids);
          REQUIRE(engine.verifier().Close(sequence));
          // One id more would reach max_tokens at the last place.
          if (is_thought || cut + 1 == whole.ids.size()) continue;
          // Behind the marker the ids that are given are held against the constraint.
          ids.assign(whole.ids.begin(), whole.ids.begin() + static_cast<int64_t>(cut));
          ids.push_back(IdOf(" "));
          const std::string text = TextOf(ids);
          const grammar::GrammarRules rules = RulesOf(constraint);
          const bool is_allowed =
              grammar::GrammarReference(rules).IsPrefix(text.substr(text.find(')') + 1));
          const auto reopened = engine.verifier().Open(params, {{}, ids});
          if (!is_allowed) {
            REQUIRE(reopened.status().ToString().find("forbidden by the constraint") !=
                    std::string::npos);
            ++num_refused;
          } else if (reopened.ok()) {
            REQUIRE(engine.verifier().Close(reopened->handle));
          }
        }
      }
    }
    CHECK(num_in_thought > 30);
    CHECK(num_behind > 30);
    CHECK(num_refused > 10);
  }

  TEST_CASE("a thinking budget forced its end after the constraint had begun") {
    ConstrainedEngine engine(")");
    SequenceParams params = Constrained(GrammarKind::kRegex, "[ab)]+12");
    params.temperature = 0;
    params.thinking.budget = 3;
    params.thinking.start_id = IdOf("(");
    params.thinking.end_ids = {IdOf(")")};
    const Ids written = {IdOf("("), IdOf("c")};
    // The budget counts ids and does not see the marker inside "b)". The constraint would allow the
    // id that the budget forces from the third token of the thought on.
    const SequenceHandle crossed = engine.Open(params, written);
    const Ids through = {IdOf("b)"), IdOf("a"), IdOf("a")};
    engine.Want({through[0], through[1], through[2], IdOf("b")});
    SequenceResult result = engine.RoundOverRows(crossed, through);
    REQUIRE(result.status == RoundStatus::kOk);
    CHECK(Kept(result) == Ids{IdOf("b)"), IdOf("a"), IdOf("a"), IdOf("b")});
    // A thought that is still open ends at its budget.
    const SequenceHandle open = engine.Open(params, written);
    const Ids drafts = {IdOf("c"), IdOf("c"), IdOf("c")};
    engine.Want({drafts[0], drafts[1], drafts[2], IdOf("c")});
    result = engine.RoundOverRows(open, drafts);
    REQUIRE(result.status == RoundStatus::kOk);
    CHECK(Kept(result) == Ids{IdOf("c"), IdOf("c"), IdOf(")")});
  }
}

}  // namespace
}  // namespace specd
