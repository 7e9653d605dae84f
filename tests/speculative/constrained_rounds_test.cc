// Rounds of sequences under a constraint: every text obeys it, and drafts change nothing but speed.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/speculative/constrained_texts.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("greedy and exact_match: one text for every draft, and it obeys the constraint") {
    ConstrainedEngine engine;
    uint32_t num_accepted = 0;
    uint32_t num_stopped = 0;
    for (const Constraint& constraint : kConstraints) {
      for (int trial = 0; trial < 12; ++trial) {
        SequenceParams params = Constrained(constraint.kind, constraint.text);
        params.seed = static_cast<uint64_t>(trial);
        params.temperature = trial % 3 == 0 ? 0 : 1;
        params.verify = trial % 3 == 0 ? VerifyMethod::kAuto : VerifyMethod::kExactMatch;
        params.min_tokens = trial % 4 == 1 ? 6 : 0;
        const Text plain = Generate(engine, params, nullptr, 0, DraftKind::kOneHot, 0);
        CheckObeys(constraint, plain);
        num_stopped += plain.reason == FinishReason::kStop;
        for (const int32_t max_draft : {1, 3, kDraft}) {
          CAPTURE(constraint.text);
          CAPTURE(max_draft);
          const Text drafted = Generate(engine, params, &plain, max_draft, DraftKind::kOneHot,
                                        static_cast<uint32_t>(trial));
          REQUIRE(drafted.ids == plain.ids);
          REQUIRE(drafted.reason == plain.reason);
          num_accepted += drafted.num_accepted;
          const Text branched = Generate(engine, params, &plain, max_draft, DraftKind::kOneHot,
                                         static_cast<uint32_t>(trial), true);
          REQUIRE(branched.ids == plain.ids);
          REQUIRE(branched.reason == plain.reason);
        }
      }
    }
    CHECK(num_accepted > 200);
    CHECK(num_stopped > 20);
  }

  TEST_CASE("token and block with sampled drafts: every text obeys the constraint") {
    ConstrainedEngine engine;
    for (const Constraint& constraint : kConstraints) {
      for (int trial = 0; trial < 20; ++trial) {
        SequenceParams params = Constrained(constraint.kind, constraint.text);
        params.seed = static_cast<uint64_t>(trial);
        params.verify = trial % 2 == 0 ? VerifyMethod::kToken : VerifyMethod::kBlock;
        const Text plain = Generate(engine, params, nullptr, 0, DraftKind::kOneHot, 0);
        CheckObeys(constraint, plain);
        const Text drafted = Generate(engine, params, &plain, kDraft, DraftKind::kSampled,
                                      static_cast<uint32_t>(trial));
        CheckObeys(constraint, drafted);
      }
    }
  }

  TEST_CASE("trees of any method and kind: every text obeys the constraint") {
    ConstrainedEngine engine;
    uint32_t num_accepted = 0;
    for (const Constraint& constraint : kConstraints) {
      for (const VerifyMethod method :
           {VerifyMethod::kTree, VerifyMethod::kTraversal, VerifyMethod::kTargetOnly}) {
        for (int trial = 0; trial < 12; ++trial) {
          SequenceParams params = Constrained(constraint.kind, constraint.text);
          params.seed = static_cast<uint64_t>(trial);
          params.verify = method;
          const Text plain = Generate(engine, params, nullptr, 0, DraftKind::kOneHot, 0);
          const auto kind = static_cast<DraftKind>(trial % 3);
          const Text branched =
              Generate(engine, params, &plain, kDraft, kind, static_cast<uint32_t>(trial), true);
          CheckObeys(constraint, branched);
          num_accepted += branched.num_accepted;
        }
      }
    }
    CHECK(num_accepted > 100);
  }

  TEST_CASE("drafts that specd draws under the constraint obey it, and are judged by the same q") {
    ConstrainedEngine engine;
    for (const Constraint& constraint : kConstraints) {
      SequenceParams params = Constrained(constraint.kind, constraint.text);
      params.draft.edits = true;
      params.verify = VerifyMethod::kToken;
      const grammar::GrammarRules rules = RulesOf(constraint);
      grammar::GrammarReference reference(rules);
      const SequenceHandle sequence = engine.Open(params);
      Text text;
      uint32_t num_drafted = 0;
      while (text.reason == FinishReason::kNone) {
        Ids drafts;
        std::vector<DraftSample> samples;
        while (drafts.size() < 3 && (drafts.empty() || drafts.back() != kEos)) {
          Ids tokens = text.ids;
          tokens.insert(tokens.end(), drafts.begin(), drafts.end());
          ConstrainedEngine::FillRow(tokens, 0,
                                     engine.draft_logits().data());  // the target's own row
          const DraftInput input = {.sequence = sequence,
                                    .row = 0,
                                    .mask_row = -1,
                                    .prefix = drafts.data(),
                                    .num_prefix = static_cast<int32_t>(drafts.size()),
                                    .sampling = DraftSampling::kWithReplacement,
                                    .num_children = 1,
                                    .first_node = static_cast<uint32_t>(drafts.size() + 1)};
          DraftResult result;
          SampleDraftAtOnce(&engine.verifier(), {&input, 1}, {&result, 1});
          REQUIRE(result.status == RoundStatus::kOk);
          drafts.push_back(result.children[0].id);
          tokens.push_back(drafts.back());
          REQUIRE(reference.IsPrefix(TextOf(tokens)));
          ++num_drafted;
        }
        // p = q at every place, so every draft token is accepted, unless the text ends before.
        const SequenceResult result =
            engine.Round(sequence, text.ids, drafts, DraftKind::kSampled, /*draft_salt=*/0);
        REQUIRE(result.status == RoundStatus::kOk);
        const Ids kept = Kept(result);
        REQUIRE(result.num_accepted == std::min(drafts.size(), kept.size()));
        text.ids.insert(text.ids.end(), kept.begin(), kept.end());
        text.reason = result.finish_reason;
      }
      CheckObeys(constraint, text);
      CHECK(num_drafted > 0);
      REQUIRE(engine.verifier().Close(sequence));
    }
  }

  TEST_CASE("vLLM pull 44292: the row behind a -1 is constrained") {
    for (const Ids& drafts : {Ids{kNoToken}, Ids{IdOf("a"), kNoToken, kNoToken},
                              Ids{kNoToken, IdOf("a"), IdOf("b")}, Ids{kVocab + 5, IdOf("c")}}) {
      ConstrainedEngine engine;
      SequenceParams params = Constrained(GrammarKind::kRegex, "a*b");
      params.temperature = 0;
      const SequenceHandle sequence = engine.Open(params);
      // Every row wants "c", then "a" and "b" alike.
      std::vector<float>& logits = engine.logits();
      std::fill(logits.begin(), logits.end(), 0.0f);
      for (int32_t row = 0; row <= kDraft; ++row) {
        logits[static_cast<size_t>(row * kVocab + IdOf("c"))] = 9;
        logits[static_cast<size_t>(row * kVocab + IdOf("a"))] = 5;
      }
      const SequenceResult result = engine.RoundOverRows(sequence, drafts);
      REQUIRE(result.status == RoundStatus::kOk);
      REQUIRE(result.num_kept >= 1);
      for (const TokenId id : Kept(result)) CHECK(id == IdOf("a"));
    }
  }

  TEST_CASE("vLLM pull 44292: the row behind a -1 is constrained, with random sampling too") {
    constexpr uint64_t kSeeds = 200;
    for (const VerifyMethod verify :
         {VerifyMethod::kToken, VerifyMethod::kBlock, VerifyMethod::kExactMatch}) {
      for (const Ids& drafts : {Ids{kNoToken}, Ids{IdOf("a"), kNoToken, kNoToken},
                                Ids{kNoToken, IdOf("a"), IdOf("b")}, Ids{kVocab + 5, IdOf("c")}}) {
        CAPTURE(static_cast<int>(verify));
        CAPTURE(drafts.size());
        ConstrainedEngine engine;
        SequenceParams params = Constrained(GrammarKind::kRegex, "a*b");
        params.verify = verify;
        // Without the mask "c" would have nearly all of the probability, and with it "a" and "b"
        // have one half each.
        std::vector<float>& logits = engine.logits();
        std::fill(logits.begin(), logits.end(), -9.0f);
        for (int32_t row = 0; row <= kDraft; ++row) {
          logits[static_cast<size_t>(row * kVocab + IdOf("c"))] = 9;
          logits[static_cast<size_t>(row * kVocab + IdOf("a"))] = 0;
          logits[static_cast<size_t>(row * kVocab + IdOf("b"))] = 0;
        }
        uint64_t num_ended = 0;
        for (params.seed = 0; params.seed < kSeeds; ++params.seed) {
          const SequenceHandle sequence = engine.Open(params);
          const SequenceResult result = engine.RoundOverRows(sequence, drafts);
          REQUIRE(result.status == RoundStatus::kOk);
          REQUIRE(result.num_kept >= 1);
          const std::string text = TextOf(Kept(result));
          REQUIRE(text.find_first_not_of('a') >= text.size() - 1);
          REQUIRE((text.back() == 'a' || text.back() == 'b'));
          num_ended += text.back() == 'b';
          REQUIRE(engine.verifier().Close(sequence));
        }
        // One coin or more for each sequence: at least one half of them end, less 5 deviations.
        CHECK(num_ended > 64);
        CHECK(num_ended < kSeeds);
      }
    }
  }

  TEST_CASE("openvino.genai 4081: a draft past the end of the text ends it, and nothing crashes") {
    ConstrainedEngine engine;
    SequenceParams params = Constrained(GrammarKind::kRegex, "ab\\+?");
    params.temperature = 0;
    for (const Ids& drafts : {Ids{IdOf("ab"), kEos, IdOf("a"), IdOf("b"), kEos},
                              Ids{IdOf("ab"), IdOf("+"), IdOf("+"), kEos, kEos},
                              Ids{IdOf("a"), IdOf("b"), IdOf("b"), IdOf("b"), IdOf("b")}}) {
      const SequenceHandle sequence = engine.Open(params);
      engine.Want(drafts);
      const SequenceResult result = engine.RoundOverRows(sequence, drafts);
      REQUIRE(result.status == RoundStatus::kOk);
      // Where the row wants an id that is forbidden, the rest are equal and the lowest id wins:
      // EOS.
      CHECK(result.finish_reason == FinishReason::kStop);
      CHECK(TextOf(Kept(result)) == (drafts[1] == IdOf("+") ? "ab+" : "ab"));
      CHECK(result.num_kept == (drafts[0] == IdOf("ab") ? 2 : 3));
      REQUIRE(engine.verifier().Close(sequence));
    }
  }

  TEST_CASE(
      "vLLM issue 54437: a stale draft is rejected, and its place is sampled under the mask") {
    ConstrainedEngine engine;
    SequenceParams params = Constrained(GrammarKind::kRegex, "(ab)+12");
    const SequenceHandle sequence = engine.Open(params);
    // Written for a sequence without the constraint.
    const Ids stale = {IdOf("c"), IdOf("("), IdOf("a")};
    const SequenceResult result = engine.Round(sequence, {}, stale);
    REQUIRE(result.status == RoundStatus::kOk);
    CHECK(result.num_accepted == 0);
    REQUIRE(result.num_kept == 1);
    const std::string text = TextOf(Kept(result));
    CHECK((text == "a" || text == "ab"));
    CHECK(engine.verifier().counters().invalid_drafts == 1);
  }

  TEST_CASE("the text is complete and cannot go on: the round that completes it ends it (§7)") {
    ConstrainedEngine engine;
    SequenceParams params = Constrained(GrammarKind::kRegex, "abc");
    params.temperature = 0;
    params.min_tokens = 9;  // no reason against the end of a constraint
    const SequenceHandle sequence = engine.Open(params);
    const Ids drafts = {IdOf("ab"), IdOf("c"), kEos};
    engine.Want(drafts);
    const SequenceResult result = engine.RoundOverRows(sequence, drafts);
    CHECK(result.finish_reason == FinishReason::kStop);
    CHECK(result.stop_token == kNoToken);
    CHECK(TextOf(Kept(result)) == "abc");

    // A stop string that completes earlier, or at the same token, still outranks that end (§7).
    params.min_tokens = 0;
    for (const uint32_t kept : {1u, 2u}) {
      const SequenceHandle other = engine.Open(params);
      REQUIRE(engine.RoundOverRows(other, drafts).finish_reason == FinishReason::kStop);
      const Sequence* moved = engine.verifier().Finish(other, FinishReason::kStop, kept);
      REQUIRE(moved != nullptr);
      CHECK(moved->kept_tokens == kept);
      CHECK(engine.verifier().Finish(other, FinishReason::kStop, 1) == nullptr);
      REQUIRE(engine.verifier().Close(other));
    }
  }

  TEST_CASE("killed and opened again from its ids, a sequence goes on with the same text") {
    ConstrainedEngine engine;
    for (const Constraint& constraint : kConstraints) {
      SequenceParams params = Constrained(constraint.kind, constraint.text);
      const Text whole = Generate(engine, params, nullptr, 0, DraftKind::kOneHot, 0);
      for (size_t cut = 1; cut < whole.ids.size(); ++cut) {
        Ids ids(whole.ids.begin(), whole.ids.begin() + static_cast<int64_t>(cut));
        const SequenceHandle sequence = engine.Open(params, ids);
        for (FinishReason reason = FinishReason::kNone; reason == FinishReason::kNone;) {
          const SequenceResult result = engine.Round(sequence, ids, {});
          REQUIRE(result.status == RoundStatus::kOk);
          for (const TokenId id : Kept(result)) ids.push_back(id);
          reason = result.finish_reason;
        }
        REQUIRE(ids == whole.ids);
        REQUIRE(engine.verifier().Close(sequence));
      }
    }
  }

  TEST_CASE("a fork goes its own way, and its source is undisturbed") {
    ConstrainedEngine engine;
    SequenceParams params = Constrained(GrammarKind::kRegex, "(ab|c)*12?");
    const Text whole = Generate(engine, params, nullptr, 0, DraftKind::kOneHot, 0);
    const SequenceHandle source = engine.Open(params);
    Ids ids;
    for (const TokenId expected : whole.ids) {
      const auto fork = engine.verifier().Fork(source, 77);
      REQUIRE(fork.ok());
      Ids forked = ids;
      for (int i = 0; i < 3; ++i) {
        const SequenceResult result = engine.Round(fork->handle, forked, {});
        for (const TokenId id : Kept(result)) forked.push_back(id);
        if (result.finish_reason != FinishReason::kNone) break;
      }
      REQUIRE(engine.verifier().Close(fork->handle));
      const SequenceResult result = engine.Round(source, ids, {});
      REQUIRE(Kept(result) == Ids{expected});
      ids.push_back(expected);
    }
  }

  TEST_CASE("a text that met a limit ended without a word: its round now names the limit") {
    // After n letters, any number of them up to n may still want its "b".
    ConstrainedEngine engine;
    SequenceParams params =
        Constrained(GrammarKind::kEbnf, "root ::= \"a\" root | x\nx ::= \"a\" x \"b\"? | \"c\"");
    params.temperature = 0;
    params.max_tokens = 100000;
    const SequenceHandle sequence = engine.Open(params);
    const SequenceHandle other = engine.Open(Constrained(GrammarKind::kRegex, "a+"));
    const TokenId a = IdOf("a");
    const Ids drafts(kDraft, a);
    engine.Want({a, a, a, a, a, a});
    uint32_t num_kept = 0;
    SequenceResult result;
    do {
      result = engine.RoundOverRows(sequence, drafts);
      num_kept += result.num_kept;
      REQUIRE(num_kept < 5000);
    } while (result.status == RoundStatus::kOk);
    CHECK(result.status == RoundStatus::kBadDistribution);
    CHECK(result.refusal == Refusal::kGrammarWays);
    CHECK(result.finish_reason == FinishReason::kError);
    // Every token before the limit is kept.
    CHECK(num_kept > 1000);
    CHECK(result.total_kept == num_kept);
    CHECK(engine.RoundOverRows(sequence, drafts).status == RoundStatus::kFinished);
    CHECK(engine.RoundOverRows(other, drafts).status == RoundStatus::kOk);
  }

  TEST_CASE("min_tokens left a row of zeros where no token goes on") {
    // After "12" a byte may follow, but no token begins with it.
    ConstrainedEngine engine;
    SequenceParams params = Constrained(GrammarKind::kRegex, "12(3|z4)?");
    params.min_tokens = 5;
    const SequenceHandle sequence = engine.Open(params);
    engine.Want({IdOf("12"), IdOf("12")});
    const SequenceResult result = engine.RoundOverRows(sequence, {IdOf("12")});
    CHECK(result.status == RoundStatus::kOk);
    CHECK(result.finish_reason == FinishReason::kStop);
    CHECK(result.num_kept == 1);
  }

  TEST_CASE("what cannot be honoured is refused by name") {
    ConstrainedEngine engine;
    const auto message = [&](const SequenceParams& params, const Ids& outputs = {}) {
      const auto info = engine.verifier().Open(params, {{}, outputs});
      return info.ok() ? std::string() : std::string(info.status().message());
    };
    CHECK(message(Constrained(GrammarKind::kRegex, "(")).find("grammar: ") == 0);
    CHECK(message(Constrained(GrammarKind::kNone, "abc")).find("name its kind") !=
          std::string::npos);
    CHECK(message(Constrained(GrammarKind::kRegex, "abc"), {IdOf("a"), IdOf("1")}) ==
          "output_ids[1] = 9 is forbidden by the constraint; give the tokens that were generated "
          "under it, or open the sequence without it");

    const SequenceHandle sequence = engine.Open(Constrained(GrammarKind::kRegex, "abc"));
    const uint32_t words[] = {~0u};
    engine.verifier().BindMask({words, 1, 1});
    const uint32_t rows[] = {0};
    const int32_t mask_rows[] = {0};
    SequenceInput input;
    input.sequence = sequence;
    input.draft.target_rows = rows;
    input.mask_rows = mask_rows;
    SequenceResult result;
    VerifyRound(&engine.verifier(), {&input, 1}, {&result, 1});
    CHECK(result.refusal == Refusal::kTwoMasks);
  }
}

}  // namespace
}  // namespace specd
