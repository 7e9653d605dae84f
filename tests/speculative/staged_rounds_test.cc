// Rounds that are staged ahead of their answers: what a task says of a state that the verifier does
// not know yet, and what is committed when the answers come.
#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/speculative/verifier_fixture.h"
#include "tests/support/scripted_grammar.h"

namespace specd {
namespace {

struct Fixture : VerifierFixture {
  Fixture() { REQUIRE(verifier->EnqueueStaged(nullptr, 1).ok()); }

  void Stage(SequenceHandle sequence) { Stage({Input(sequence)}); }
  void Stage(const std::vector<SequenceInput>& inputs) { verifier->StageRound(inputs); }

  // The answers of the oldest staged round, which the device has done.
  std::vector<SequenceResult> Collect() {
    std::vector<SequenceResult> results(verifier->num_staged_inputs());
    backend->num_run = 1;
    REQUIRE(verifier->CollectRound(results));
    return results;
  }

  TokenId by_slot[12] = {};
};

TEST_SUITE("unit") {
  TEST_CASE("a round behind unanswered ones continues from the last state that is known") {
    Fixture f;
    const SequenceHandle s = f.Open();
    f.backend->script = {Confirm(2, {1, 2, 5}), Confirm(0, {4}), Confirm(0, {6}), Confirm(0, {0})};
    f.Stage(s);
    f.Stage(s);
    std::vector<Task>& seen = f.backend->seen;
    CHECK_FALSE(seen[0].continues);
    CHECK(seen[1].continues);
    CHECK(seen[1].first_position == 0);

    CHECK(Kept(f.Collect()[0]) == std::vector<TokenId>{1, 2, 5});
    f.Stage(s);  // one round is still under way
    CHECK(seen[2].continues);
    CHECK(seen[2].first_position == 3);
    CHECK(seen[2].round_base == 3);
    CHECK(f.Collect()[0].total_kept == 4);
    CHECK(f.Collect()[0].total_kept == 5);
    f.Stage(s);  // nothing is under way, so all is known
    CHECK_FALSE(seen[3].continues);
    CHECK(seen[3].first_position == 5);
  }

  TEST_CASE("nothing is collected before the device has done it, and then in order") {
    Fixture f;
    const SequenceHandle a = f.Open();
    const SequenceHandle b = f.Open();
    f.backend->script = {Confirm(0, {1}), Confirm(0, {2})};
    CHECK(f.verifier->num_staged_inputs() == 0);
    f.Stage(a);
    f.Stage(b);
    SequenceResult result;
    CHECK_FALSE(f.verifier->CollectRound({&result, 1}));
    CHECK(f.Collect()[0].sequence == a);
    CHECK(f.Collect()[0].sequence == b);
    CHECK(f.verifier->num_staged() == 0);
    CHECK(f.verifier->counters().rounds == 2);
  }

  TEST_CASE("what a round ahead confirmed behind the end is void") {
    Fixture f;
    const SequenceHandle s = f.Open();
    f.backend->script = {Confirm(1, {1, 7}), Confirm(2, {2, 3, 4})};  // 7 is EOS
    f.Stage(s);
    f.Stage(s);
    CHECK(f.Collect()[0].finish_reason == FinishReason::kStop);
    const SequenceResult late = f.Collect()[0];
    CHECK(late.status == RoundStatus::kFinished);
    CHECK(late.num_kept == 0);
    CHECK(late.total_kept == 2);
    CHECK(f.verifier->counters().kept == 2);
    CHECK(f.verifier->counters().sequence_rounds == 1);
  }

  TEST_CASE("a closed sequence keeps its slot until its rounds are collected") {
    Fixture f;
    const SequenceHandle old = f.Open();
    f.backend->script = {Confirm(0, {1}), Confirm(0, {2}), Confirm(0, {3})};
    f.Stage(old);
    f.Stage(old);
    REQUIRE(f.verifier->Close(old));
    const SequenceHandle other = f.Open();
    CHECK(SlotOf(other) != SlotOf(old));
    CHECK(f.Collect()[0].status == RoundStatus::kUnknownSequence);
    const SequenceHandle third = f.Open();
    const SequenceHandle fourth = f.Open();
    CHECK(f.verifier->Open({}).status().code() == absl::StatusCode::kResourceExhausted);
    CHECK(f.Collect()[0].status == RoundStatus::kUnknownSequence);
    const SequenceHandle again = f.Open();
    CHECK(SlotOf(again) == SlotOf(old));
    for (const SequenceHandle s : {other, third, fourth}) CHECK(SlotOf(s) != SlotOf(old));
    // Nothing of the old sequence is the new one's.
    f.Stage(again);
    CHECK_FALSE(f.backend->seen.back().continues);
    CHECK(Kept(f.Collect()[0]) == std::vector<TokenId>{3});
  }

  TEST_CASE("what has no task is answered with the state at its turn") {
    Fixture f;
    const SequenceHandle s = f.Open(4);
    f.backend->script = {Confirm(1, {1, 2}), Confirm(0, {3}), Confirm(0, {4})};
    SequenceInput discard = f.Input(s);
    discard.discard = true;
    SequenceInput bad = f.Input(s);
    bad.refusal = Refusal::kTargetRow;
    f.Stage(s);
    f.Stage({discard});
    f.Stage(s);
    f.Stage({bad});
    CHECK(f.Collect()[0].total_kept == 2);
    SequenceResult nothing = f.Collect()[0];
    CHECK(nothing.status == RoundStatus::kOk);
    CHECK(nothing.num_kept == 0);
    CHECK(nothing.total_kept == 2);
    CHECK(f.Collect()[0].total_kept == 3);
    nothing = f.Collect()[0];
    CHECK(nothing.status == RoundStatus::kInvalid);
    CHECK(nothing.refusal == Refusal::kTargetRow);
    CHECK(nothing.total_kept == 3);
    // Rounds after the end are void, whether they were valid or not.
    f.Stage(s);
    f.Stage({discard});
    f.Stage({bad});
    CHECK(f.Collect()[0].finish_reason == FinishReason::kLength);
    for (int i = 0; i < 2; ++i) {
      nothing = f.Collect()[0];
      CHECK(nothing.status == RoundStatus::kFinished);
      CHECK(nothing.total_kept == 4);
    }
    CHECK(f.verifier->counters().discarded == 2);
  }

  TEST_CASE("a fork has no rounds under way") {
    Fixture f;
    const SequenceHandle s = f.Open();
    f.Stage(s);
    const SequenceHandle fork = f.verifier->Fork(s, 1)->handle;
    f.Stage(fork);
    CHECK_FALSE(f.backend->seen[1].continues);
  }

  TEST_CASE("a round whose inputs are all refused is staged empty, so that launches stay in step") {
    Fixture f;
    const SequenceHandle s = f.Open();
    f.backend->script = {Confirm(0, {1})};
    SequenceInput bad = f.Input(s);
    bad.refusal = Refusal::kTargetRow;
    f.Stage({bad});
    f.Stage(s);
    REQUIRE(f.backend->staged.size() == 2);
    CHECK(f.backend->staged[0].num_tasks == 0);
    CHECK_FALSE(f.backend->seen[0].continues);
    CHECK(f.Collect()[0].status == RoundStatus::kInvalid);
    CHECK(f.Collect()[0].status == RoundStatus::kOk);
  }

  TEST_CASE("a sequence that the backend has no room for is told so, and the others are staged") {
    Fixture f;
    const SequenceHandle first = f.Open();
    const SequenceHandle large = f.Open();
    const SequenceHandle last = f.Open();
    // Says so of this one, as often as it is there.
    const uint32_t slot = SlotOf(large);
    f.backend->inspect = [&](const RoundBatch& batch) {
      for (int32_t i = 0; i < batch.num_tasks; ++i) {
        CHECK(batch.outcomes[i].status == OutcomeStatus::kOk);
        if (batch.tasks[i].slot != slot) continue;
        batch.outcomes[i].status = OutcomeStatus::kNoRoom;
        f.backend->stage_statuses = {absl::ResourceExhaustedError("too large")};
      }
    };
    f.Stage({f.Input(first), f.Input(large), f.Input(last)});
    REQUIRE(f.backend->staged.size() == 1);
    REQUIRE(f.backend->staged[0].num_tasks == 2);
    CHECK(f.backend->seen[0].slot == SlotOf(first));
    CHECK(f.backend->seen[1].slot == SlotOf(last));
    f.Stage(large);
    REQUIRE(f.backend->staged.size() == 2);
    CHECK(f.backend->staged[1].num_tasks == 0);

    f.backend->script = {Confirm(0, {1}), Confirm(0, {2})};
    const std::vector<SequenceResult> results = f.Collect();
    REQUIRE(results.size() == 3);
    CHECK(Kept(results[0]) == std::vector<TokenId>{1});
    CHECK(Kept(results[2]) == std::vector<TokenId>{2});
    // The answers of staged rounds named no method, and those of refused ones did.
    CHECK(results[0].method == VerifyMethod::kExactMatch);
    CHECK(results[2].method == VerifyMethod::kExactMatch);
    const SequenceResult alone = f.Collect()[0];
    for (const SequenceResult& refused : {results[1], alone}) {
      CHECK(refused.sequence == large);
      CHECK(refused.status == RoundStatus::kInvalid);
      CHECK(refused.refusal == Refusal::kNoRoom);
      CHECK(refused.method == VerifyMethod::kAuto);
      CHECK(RefusalText(refused.refusal).find("more memory") != std::string_view::npos);
    }
    CHECK(f.verifier->counters().invalid_records == 2);
    // It is not held by rounds that it has no part in.
    f.backend->inspect = nullptr;
    f.backend->script = {Confirm(0, {3})};
    f.Stage(large);
    CHECK_FALSE(f.backend->seen.back().continues);
    CHECK(Kept(f.Collect()[0]) == std::vector<TokenId>{3});
  }

  TEST_CASE("a device that fails is said of every round under way, and of all that come later") {
    Fixture f;
    const SequenceHandle s = f.Open();
    f.Stage(s);
    f.Stage(s);
    f.backend->next_status = absl::InternalError("fell off the bus");
    const SequenceResult lost = f.Collect()[0];
    CHECK(lost.status == RoundStatus::kDeviceError);
    CHECK(lost.method == VerifyMethod::kAuto);
    CHECK(f.verifier->failure().message() == "fell off the bus");
    // Later answers of the backend are of rounds that it counts differently.
    f.backend->next_status = absl::OkStatus();
    f.Stage(s);
    CHECK(f.Collect()[0].status == RoundStatus::kDeviceError);
    CHECK(f.Collect()[0].status == RoundStatus::kDeviceError);
    CHECK(f.verifier->num_staged() == 0);
    CHECK(f.verifier->Find(s)->kept_tokens == 0);
    CHECK(f.backend->staged.size() == 2);
  }

  TEST_CASE("a device that cannot stage a round is said so in its turn") {
    Fixture f;
    const SequenceHandle s = f.Open();
    f.Stage(s);
    f.backend->stage_statuses = {absl::InternalError("gone")};
    f.Stage(s);
    CHECK(f.verifier->num_staged() == 2);
    CHECK(f.verifier->failure().ok());  // nothing has been answered so yet
    CHECK(f.Collect()[0].status == RoundStatus::kDeviceError);
    CHECK(f.verifier->failure().message() == "gone");
    CHECK(f.Collect()[0].status == RoundStatus::kDeviceError);
    // Another failure since is not why the next staged round ends so.
    f.backend->next_status = absl::InternalError("of a round that was not staged");
    CHECK(f.Round(s).status == RoundStatus::kDeviceError);
    CHECK(f.verifier->failure().message() == "of a round that was not staged");
    f.Stage(s);
    CHECK(f.Collect()[0].status == RoundStatus::kDeviceError);
    CHECK(f.verifier->failure().message() == "gone");
  }

  TEST_CASE("the backend is told of every slot that it keeps something for") {
    CHECK(Fixture().backend->limits.num_slots == 4);
  }

  TEST_CASE("draft tokens by slot: the task says where they are, and nobody looks at them here") {
    Fixture f;
    SequenceParams params;
    params.frequency_penalty = 1;
    params.min_tokens = 2;
    const SequenceHandle s = f.Open(params);
    SequenceInput input = f.Input(s);
    input.draft.tokens = nullptr;
    input.drafts_by_slot = true;
    f.verifier->BindDraftTokens({f.by_slot, 3, MemorySpace::kHost});
    f.backend->script = {Confirm(1, {1, 2})};
    f.backend->script[0].outcome.num_drafts = 2;
    f.backend->inspect = [&](const RoundBatch& batch) {
      CHECK(batch.draft_tokens.ids == f.by_slot);
      const Task& task = batch.tasks[0];
      CHECK(task.drafts_by_slot);
      CHECK(task.draft.num_nodes == 3);
      CHECK(task.draft.tokens == nullptr);
      CHECK(task.min_tokens == 2);
      CHECK(task.places == nullptr);
    };
    CHECK(f.Round(input).num_accepted == 1);
    CHECK(f.verifier->counters().drafted == 2);  // as many as the device found
  }

  TEST_CASE("masks of draft tokens by slot are in the places, and nothing else is") {
    Fixture f;
    SequenceParams params;
    params.presence_penalty = 1;
    const SequenceHandle s = f.Open(params);
    const uint32_t words[2] = {0xff, 0xff};
    f.verifier->BindMask({words, 2, 1, MemorySpace::kHost});
    f.verifier->BindDraftTokens({f.by_slot, 3, MemorySpace::kHost});
    SequenceInput input = f.Input(s);
    input.draft.tokens = nullptr;
    input.drafts_by_slot = true;
    const int32_t mask_rows[4] = {-1, 0, 1, -1};
    input.mask_rows = mask_rows;
    f.backend->script = {Confirm(0, {1})};
    f.backend->inspect = [&](const RoundBatch& batch) {
      const PlaceEdits* const places = batch.tasks[0].places;
      REQUIRE(places != nullptr);
      for (size_t i = 0; i < 4; ++i) {
        CHECK(places[i].mask_row == mask_rows[i]);
        CHECK(places[i].num_overrides == 0);
        CHECK_FALSE(places[i].below_min_tokens);
      }
    };
    CHECK(f.Round(input).status == RoundStatus::kOk);
  }

  TEST_CASE("a constrained sequence is refused by name in a staged round, and others run") {
    const auto script = std::make_shared<GrammarScript>();
    Fixture f;
    const SequenceHandle constrained = f.OpenUnder(std::make_unique<ScriptedMatcher>("a", script));
    const SequenceHandle plain = f.Open();
    int num_masks = 0;
    script->on_mask = [&num_masks](const std::string&, const std::vector<TokenId>&) {
      ++num_masks;
    };
    f.backend->script = {Confirm(0, {1})};
    f.Stage({f.Input(constrained), f.Input(plain)});
    const std::vector<SequenceResult> results = f.Collect();
    CHECK(results[0].status == RoundStatus::kInvalid);
    CHECK(results[0].refusal == Refusal::kStagedGrammar);
    CHECK(RefusalText(results[0].refusal).find("submit its round instead of staging it") !=
          std::string_view::npos);
    CHECK(Kept(results[1]) == std::vector<TokenId>{1});
    CHECK(num_masks == 0);
    // Submitted, the same sequence runs.
    f.backend->script = {Confirm(0, {2})};
    CHECK(Kept(f.Round(constrained)) == std::vector<TokenId>{2});
    CHECK(num_masks > 0);
  }

  TEST_CASE("what looks at tokens on the host is refused where the host does not know them") {
    Fixture f;
    f.verifier->BindDraftTokens({f.by_slot, 3, MemorySpace::kHost});
    SequenceParams params;
    params.bad_words = {{1, 2}};
    const SequenceHandle s = f.Open(params);
    SequenceInput input = f.Input(s);
    input.draft.tokens = nullptr;
    input.drafts_by_slot = true;
    f.Stage({input});
    const SequenceResult refused = f.Collect()[0];
    CHECK(refused.status == RoundStatus::kInvalid);
    CHECK(refused.refusal == Refusal::kHostTokens);
    // A round that is not staged reads them.
    f.backend->script = {Confirm(0, {1}), Confirm(0, {1})};
    CHECK(f.Round(input).status == RoundStatus::kOk);
    CHECK_FALSE(f.backend->seen.back().drafts_by_slot);
    // Known draft tokens are allowed after known ones, and not after unknown ones.
    f.Stage(s);
    f.Stage(s);
    CHECK(f.Collect()[0].status == RoundStatus::kOk);
    CHECK(f.Collect()[0].status == RoundStatus::kInvalid);
  }
}

}  // namespace
}  // namespace specd
