// If no memory is left for a constraint, that sequence ends with an error; no other notices, and
// the process lives.
#include <doctest/doctest.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "tests/speculative/verifier_fixture.h"
#include "tests/support/scripted_grammar.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

struct ConstrainedVerifier : VerifierFixture {
  SequenceHandle OpenConstrained(const std::string& name) {
    SequenceParams params;
    params.max_tokens = 100;
    params.draft.edits = true;
    return OpenUnder(std::make_unique<ScriptedMatcher>(name, shared_script), params);
  }
  // Runs one round of "a" and "b" under constraints, and of one sequence without.
  std::vector<SequenceResult> RoundOfAll() {
    const SequenceInput inputs[] = {Input(a), Input(b), Input(c)};
    std::vector<SequenceResult> results(3);
    backend->script = {Confirm(1, {1, 5}), Confirm(1, {1, 5}), Confirm(1, {1, 5})};
    VerifyRound(verifier, inputs, results);
    return results;
  }
  // "a" has ended and kept nothing more; the others have kept two tokens each.
  static void CheckAEnded(const std::vector<SequenceResult>& results, uint32_t total_kept = 0) {
    CHECK(results[0].status == RoundStatus::kBadDistribution);
    CHECK(results[0].finish_reason == FinishReason::kError);
    CHECK(results[0].num_kept == 0);
    CHECK(results[0].total_kept == total_kept);
    for (size_t i = 1; i < 3; ++i) {
      CHECK(results[i].status == RoundStatus::kOk);
      CHECK(Kept(results[i]) == Ids{1, 5});
    }
  }

  const std::shared_ptr<GrammarScript> shared_script = std::make_shared<GrammarScript>();
  GrammarScript& script = *shared_script;
  const SequenceHandle a = OpenConstrained("a");
  const SequenceHandle b = OpenConstrained("b");
  const SequenceHandle c = Open();
};

void ThrowAt(const std::string& name, const std::string& wanted) {
  if (name == wanted) throw std::bad_alloc();
}

TEST_SUITE("unit") {
  TEST_CASE("no memory for a mask, at any place of the draft: the sequence ends, alone") {
    for (size_t place = 0; place < 4; ++place) {
      ConstrainedVerifier f;
      f.script.on_mask = [place](const std::string& name, const Ids& ids) {
        if (ids.size() == place) ThrowAt(name, "a");
      };
      f.CheckAEnded(f.RoundOfAll());
      // It answers as any finished sequence does, and the others go on.
      const std::vector<SequenceResult> next = f.RoundOfAll();
      CHECK(next[0].status == RoundStatus::kFinished);
      CHECK(next[1].total_kept == 4);
      CHECK(f.verifier->counters().bad_tokens == 0);
      CHECK(f.verifier->Close(f.a));
    }
  }

  TEST_CASE("no memory while kept tokens are committed: the sequence ends, alone") {
    for (int call = 0; call < 8; ++call) {
      ConstrainedVerifier f;
      int num_calls = 0;
      bool has_thrown = false;
      f.script.on_accept = [&](const std::string& name, const Ids&) {
        if (name != "a" || num_calls++ != call) return;
        has_thrown = true;
        throw std::bad_alloc();
      };
      const std::vector<SequenceResult> results = f.RoundOfAll();
      // Three draft tokens at the masks, two tokens looked at, two committed.
      CHECK(has_thrown == (call < 7));
      if (has_thrown) {
        f.CheckAEnded(results);
      } else {
        CHECK(Kept(results[0]) == Ids{1, 5});
      }
    }
  }

  TEST_CASE("no memory in a round that is called off: nothing has changed, and the next ends it") {
    ConstrainedVerifier f;
    f.script.on_mask = [](const std::string& name, const Ids&) { ThrowAt(name, "a"); };
    const SequenceInput input = f.Input(f.a);
    SequenceResult result;
    f.backend->script = {Confirm(1, {1, 5})};
    VerifyRound(f.verifier, {&input, 1}, {&result, 1}, [] { return false; });
    CHECK(result.status == RoundStatus::kAborted);
    CHECK(f.verifier->Find(f.a)->finish_reason == FinishReason::kNone);
    f.script.on_mask = nullptr;
    f.CheckAEnded(f.RoundOfAll());
  }

  TEST_CASE(
      "no memory for the mask of a draft token: the call is refused, the next round ends it") {
    ConstrainedVerifier f;
    f.script.on_mask = [](const std::string& name, const Ids&) { ThrowAt(name, "a"); };
    const DraftInput inputs[] = {{.sequence = f.a,
                                  .row = 0,
                                  .mask_row = -1,
                                  .prefix = f.drafts,
                                  .num_prefix = 1,
                                  .sampling = DraftSampling::kWithReplacement,
                                  .num_children = 1,
                                  .first_node = 2},
                                 {.sequence = f.b,
                                  .row = 0,
                                  .mask_row = -1,
                                  .prefix = f.drafts,
                                  .num_prefix = 1,
                                  .sampling = DraftSampling::kWithReplacement,
                                  .num_children = 1,
                                  .first_node = 2}};
    DraftResult results[2];
    // What is drawn without the mask goes nowhere.
    f.backend->script = {ScriptedOutcome{}, ScriptedOutcome{}};
    SampleDraftAtOnce(f.verifier, inputs, results);
    CHECK(results[0].status == RoundStatus::kInvalid);
    CHECK(results[0].children.empty());
    CHECK(results[0].reason ==
          "no memory is left for the masks of its constraint; its next round ends the sequence");
    CHECK(results[1].status == RoundStatus::kOk);
    f.script.on_mask = nullptr;
    f.CheckAEnded(f.RoundOfAll());
  }

  TEST_CASE("no memory while masks are built early: the round ends the sequence, alone") {
    ConstrainedVerifier f;
    f.script.on_mask = [](const std::string& name, const Ids&) { ThrowAt(name, "a"); };
    const SequenceInput inputs[] = {f.Input(f.a), f.Input(f.b)};
    MaskWarmth warmth;
    CHECK_FALSE(f.verifier->WarmMasks(inputs, &warmth));
    f.script.on_mask = nullptr;
    f.CheckAEnded(f.RoundOfAll());
  }

  TEST_CASE("masks of a round that was prepared and then called off stayed with its sequence") {
    ConstrainedVerifier f;
    const SequenceInput inputs[] = {f.Input(f.a), f.Input(f.b)};
    MaskWarmth warmth;
    CHECK_FALSE(f.verifier->WarmMasks(inputs, &warmth));
    CHECK(warmth.num_warm == 2);
    CHECK(f.script.num_rows_held() == 0);
    // The round runs, and its CUDA stream is released before the commit.
    std::vector<SequenceResult> results(2);
    f.backend->script = {Confirm(1, {1, 5}), Confirm(1, {1, 5})};
    size_t num_held = 0;
    VerifyRound(f.verifier, inputs, results, [&] {
      num_held = f.script.num_rows_held();
      return false;
    });
    CHECK(num_held == 8);  // two sequences, and four places each
    CHECK(results[0].status == RoundStatus::kAborted);
    CHECK(f.script.num_rows_held() == 0);
    for (const SequenceResult& result : f.RoundOfAll()) CHECK(Kept(result) == Ids{1, 5});
    CHECK(f.script.num_rows_held() == 0);
  }

  TEST_CASE("masks that are built early change no sequence, and skip those without a place") {
    ConstrainedVerifier f;
    std::vector<std::string> built;
    f.script.on_mask = [&built](const std::string& name, const Ids& ids) {
      built.push_back(name + std::to_string(ids.size()));
    };
    const SequenceHandle d = f.OpenConstrained("d");
    CHECK(f.verifier->Finish(d, FinishReason::kAbort, 0) != nullptr);
    SequenceInput discarded = f.Input(f.a);
    discarded.discard = true;
    SequenceInput refused = f.Input(f.a);
    refused.refusal = Refusal::kKind;
    f.drafts[1] = kNoToken;
    const SequenceInput inputs[] = {f.Input(0xabc00000000), f.Input(d),  f.Input(f.c), refused,
                                    f.Input(f.b),           f.Input(f.b)};
    const Counters before = f.verifier->counters();
    MaskWarmth warmth;
    CHECK_FALSE(f.verifier->WarmMasks({inputs, 3}, &warmth));
    CHECK(warmth.num_warm == 0);
    CHECK_FALSE(f.verifier->WarmMasks({inputs + 2, 4}, &warmth));
    CHECK(warmth.num_warm == 1);  // the second record of "b" has no place in the round
    CHECK(built == std::vector<std::string>{"b0", "b1"});
    CHECK_FALSE(f.verifier->WarmMasks({&discarded, 1}, &warmth));
    CHECK(f.verifier->counters().invalid_records == before.invalid_records);
    CHECK(f.verifier->counters().rounds == before.rounds);
    f.drafts[1] = 2;
    for (const SequenceResult& result : f.RoundOfAll()) CHECK(Kept(result) == Ids{1, 5});
  }
}

}  // namespace
}  // namespace specd
