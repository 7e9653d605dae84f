// Inputs that a sequence may bring to a round, and the tasks that its parameters make of them.
#include <doctest/doctest.h>

#include <vector>

#include "tests/speculative/verifier_fixture.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

using Fixture = VerifierFixture;
using Ids = std::vector<TokenId>;

void CheckInvalid(const SequenceResult& result, Refusal refusal) {
  CAPTURE(RefusalText(result.refusal));
  CHECK(result.status == RoundStatus::kInvalid);
  CHECK(result.refusal == refusal);
  CHECK(result.num_kept == 0);
}

TEST_SUITE("unit") {
  TEST_CASE("the kinds after a -1 count too where nobody chose a method (CONTRACT 5)") {
    Fixture f;
    f.drafts[1] = kNoToken;
    f.kinds[2] = DraftKind::kSampled;
    f.backend->script = {Confirm(0, {1})};
    f.Round(f.Open());
    REQUIRE(f.backend->seen.at(0).draft.num_nodes == 1);
    CHECK(f.verifier->counters().drafted == 1);
    CHECK(f.backend->seen.at(0).method == VerifyMethod::kBlock);
  }

  TEST_CASE("rows that are discarded change nothing and are answered OK") {
    Fixture f;
    SequenceParams params;
    params.presence_penalty = 1;
    const SequenceHandle s = f.Open(params);
    SequenceInput input = f.Input(s);
    input.discard = true;
    SequenceResult result = f.Round(input);
    CHECK(result.status == RoundStatus::kOk);
    CHECK(result.num_kept == 0);
    CHECK(result.total_kept == 0);
    CHECK(f.backend->seen.empty());
    CHECK(f.verifier->counters().discarded == 1);
    f.backend->script = {Confirm(0, {3})};
    result = f.Round(s);
    CHECK(f.backend->seen[0].round_base == 0);
    CHECK(result.total_kept == 1);
  }

  TEST_CASE("inputs that cannot be verified are named and disturb nobody") {
    Fixture f;
    const SequenceHandle s = f.Open();
    // The reader of records has found it: see tests/ipc/segment/draft_record_test.cc.
    SequenceInput input = f.Input(s);
    input.refusal = Refusal::kMaskRow;
    CheckInvalid(f.Round(input), Refusal::kMaskRow);
    // token and block know chains only.
    const int32_t parents[] = {-1, 0, -1};
    for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
      SequenceParams params;
      params.verify = method;
      input = f.Input(f.Open(params));
      input.draft.parents = parents;
      CheckInvalid(f.Round(input), Refusal::kTree);
    }
    CHECK(f.verifier->counters().invalid_records == 3);
    CHECK(f.verifier->Find(s)->finish_reason == FinishReason::kNone);
    f.backend->script = {Confirm(0, {3})};
    CHECK(f.Round(s).num_kept == 1);
  }

  TEST_CASE("mask rows of -1 alone are no mask: nothing need be bound for them") {
    Fixture f;
    const SequenceHandle s = f.Open();
    const int32_t mask_rows[] = {-1, -1, -1, -1};
    SequenceInput input = f.Input(s);
    input.mask_rows = mask_rows;
    f.backend->script = {Confirm(0, {3})};
    CHECK(f.Round(input).num_kept == 1);
  }

  TEST_CASE("mask rows reach the places they were given for") {
    Fixture f;
    const uint32_t words[] = {255, 255};
    f.verifier->BindMask({words, 2, 1});
    const int32_t mask_rows[] = {0, -1, 1, -1};
    SequenceParams params;
    params.min_tokens = 9;
    params.presence_penalty = 1;
    f.backend->script = {Confirm(0, {1}), Confirm(0, {1})};
    f.Round(f.Open(params));  // leaves places that must not show through
    SequenceInput input = f.Input(f.Open());
    input.mask_rows = mask_rows;
    f.backend->inspect = [&](const RoundBatch& batch) {
      CHECK(batch.mask.words == words);
      REQUIRE(batch.tasks[0].places != nullptr);
      for (int i = 0; i < 4; ++i) {
        const PlaceEdits& place = batch.tasks[0].places[i];
        CHECK(place.mask_row == mask_rows[i]);
        CHECK(place.num_overrides == 0);
        CHECK_FALSE(place.below_min_tokens);
      }
    };
    CHECK(f.Round(input).status == RoundStatus::kOk);
  }

  TEST_CASE("a round of argmax ids had its slot outputs held back for rows that it does not read") {
    Fixture f;
    TokenId next[4];
    f.verifier->BindSlotOutput(0, {next, MemorySpace::kDevice});
    SequenceParams params;
    params.temperature = 0;
    params.max_tokens = 9;
    const TokenId argmax[] = {1, 2, 3, 4};
    SequenceInput input = f.Input(f.Open(params));
    std::vector<int32_t> num_outputs;
    f.backend->inspect = [&](const RoundBatch& batch) {
      num_outputs.push_back(batch.num_slot_outputs);
    };
    for (const bool has_argmax : {false, true}) {
      input.draft.target_argmax = has_argmax ? argmax : nullptr;
      input.draft.target_rows = has_argmax ? nullptr : f.rows;
      input.draft.draft_rows = nullptr;
      f.backend->script = {Confirm(0, {1})};
      CHECK(f.Round(input).status == RoundStatus::kOk);
    }
    CHECK(num_outputs == std::vector<int32_t>{0, 1});
  }

  TEST_CASE("argmax ids stand for rows of greedy sequences that nothing changes") {
    Fixture f;
    SequenceParams params;
    params.temperature = 0;
    const TokenId argmax[] = {1, 2, 3, 4};
    const auto round = [&](const SequenceParams& p, const TokenId* ids) {
      const SequenceHandle s = f.Open(p);
      SequenceInput input = f.Input(s);
      input.draft.target_argmax = ids;
      input.draft.target_rows = nullptr;
      const SequenceResult result = f.Round(input);
      f.verifier->Close(s);
      return result;
    };
    f.backend->script = {Confirm(3, {1, 2, 3, 4})};
    CHECK(round(params, argmax).status == RoundStatus::kOk);
    CheckInvalid(round({}, argmax), Refusal::kArgmaxSampled);
    SequenceParams biased = params;
    biased.logit_bias = {{3, 1.0f}};
    CheckInvalid(round(biased, argmax), Refusal::kArgmaxEdited);
    SequenceParams scored = params;
    scored.logprobs = 0;
    CheckInvalid(round(scored, argmax), Refusal::kArgmaxScored);
    SequenceParams worded = params;
    worded.bad_words = {{1, 2}};
    CheckInvalid(round(worded, argmax), Refusal::kArgmaxEdited);
  }

  TEST_CASE("EOS and stop ids finish only beyond min_tokens (CONTRACT 7)") {
    Fixture f;
    SequenceParams params;
    params.min_tokens = 2;
    params.stop_token_ids = {5};
    const SequenceHandle s = f.Open(params);
    f.backend->inspect = [](const RoundBatch& batch) {
      const Task& task = batch.tasks[0];
      REQUIRE(task.edits.num_edits == 2);
      CHECK(task.edits.edits[0].id == 5);
      CHECK(task.edits.edits[1].flags == kEditEnd);
      REQUIRE(task.places != nullptr);
      CHECK(task.places[0].below_min_tokens);
      CHECK(task.places[1].below_min_tokens);
      CHECK_FALSE(task.places[2].below_min_tokens);
    };
    f.backend->script = {Confirm(2, {7, 5, 5})};
    const SequenceResult result = f.Round(s);
    CHECK(result.num_kept == 3);
    CHECK(result.finish_reason == FinishReason::kStop);
    CHECK(result.stop_token == 5);
  }

  TEST_CASE("what the kernel refused to emit ends the sequence and has its own counter") {
    Fixture f;
    const SequenceHandle s = f.Open();
    ScriptedOutcome fault = Confirm(1, {1});
    fault.outcome.status = OutcomeStatus::kBadToken;
    f.backend->script = {fault};
    const SequenceResult result = f.Round(s);
    CHECK(result.finish_reason == FinishReason::kError);
    CHECK(result.num_kept == 1);
    CHECK(f.verifier->counters().bad_tokens == 1);
    CHECK(f.verifier->counters().bad_target_rows == 0);
  }

  TEST_CASE("scores of every kept token lie side by side, whatever the others asked for") {
    Fixture f;
    SequenceParams params;
    params.logprobs = 1;
    params.logprobs_mode = ScoreMode::kProcessedLogit;
    params.logprob_token_ids = {6};
    const SequenceHandle few = f.Open(params);
    params.logprobs = 4;
    const SequenceHandle many = f.Open(params);
    const SequenceHandle none = f.Open();
    ScriptedOutcome three = Confirm(1, {1, 2});
    three.scores = {{{1, -1, 1}, {1, -1, 1}, {6, -6, 6}}, {{2, -2, 2}, {3, -3, 1}, {6, -7, 5}}};
    ScriptedOutcome six = Confirm(0, {4});
    six.scores = {{{4, 0, 1}, {4, 0, 1}, {1, 0, 2}, {2, 0, 3}, {3, 0, 4}, {6, 9, 5}}};
    f.backend->script = {three, six, Confirm(0, {5})};
    f.backend->inspect = [](const RoundBatch& batch) {
      CHECK(batch.tasks[0].scores.mode == ScoreMode::kProcessedLogit);
      CHECK(batch.tasks[0].scores.chosen[0] == 6);
      CHECK_FALSE(batch.tasks[2].scores.enabled);
    };
    const SequenceInput inputs[] = {f.Input(few), f.Input(many), f.Input(none)};
    SequenceResult results[3];
    VerifyRound(f.verifier, inputs, results);
    REQUIRE(results[0].scores_per_token == 3);
    CHECK(results[0].scores[2].value == -6);
    CHECK(results[0].scores[3].id == 2);
    CHECK(results[0].scores[5].value == -7);
    REQUIRE(results[1].scores_per_token == 6);
    CHECK(results[1].scores[5].value == 9);
    CHECK(results[2].scores_per_token == 0);
    CHECK(results[2].scores == nullptr);
  }

  TEST_CASE("filters and scales reach the task; a greedy one is scored at temperature 1") {
    Fixture f;
    SequenceParams params;
    params.temperature = 0.5;
    params.top_k = 3;
    params.top_p = 0.5;
    params.draft.top_k = 2;
    f.backend->script = {Confirm(0, {1}), Confirm(0, {1})};
    f.Round(f.Open(params));
    const Task sampled = f.backend->seen[0];
    CHECK(sampled.target_filters.top_k == 3);
    CHECK(sampled.target_filters.top_p == uint64_t{1} << 52);  // 0.5 * 2^53
    CHECK(sampled.draft_filters.top_k == 2);
    CHECK(sampled.draft_filters.top_p == kTopPOff);
    SequenceParams greedy;
    greedy.temperature = 0;
    f.Round(f.Open(greedy));
    CHECK(f.backend->seen[1].target_scale == static_cast<float>(1.4426950408889634));
    CHECK(f.backend->seen[1].places == nullptr);
  }

  TEST_CASE(
      "a round has the next tokens that are bound, whoever they are of, and tasks their slot") {
    Fixture f;
    TokenId own[4], third[4];
    std::vector<std::vector<SlotOutput>> seen;
    // The rows are memory of the host, so next tokens wait for the end of the round.
    f.backend->inspect = [&](const RoundBatch& batch) {
      CHECK(batch.num_slot_outputs == 0);
      seen.emplace_back();
    };
    f.backend->write_next = [&](const RoundBatch& batch) {
      seen.back().assign(batch.slot_outputs, batch.slot_outputs + batch.num_slot_outputs);
      return absl::OkStatus();
    };
    const SequenceHandle handles[] = {f.Open(), f.Open()};
    for (const SequenceHandle handle : handles) {
      f.backend->script = {Confirm(0, {1})};
      f.Round(handle);
      f.verifier->BindSlotOutput(3, {third, MemorySpace::kDevice});
    }
    f.verifier->BindSlotOutput(0, {own, MemorySpace::kHost});
    f.backend->script = {Confirm(0, {1})};
    f.Round(handles[0]);
    REQUIRE(seen.size() == 3);
    CHECK(seen[0].empty());
    REQUIRE(seen[1].size() == 1);
    CHECK(seen[1][0].data == third);
    CHECK(seen[1][0].space == MemorySpace::kDevice);
    REQUIRE(seen[2].size() == 2);
    CHECK(seen[2][0].data == own);
    CHECK(seen[2][1].data == third);
    CHECK(f.backend->seen[0].slot == SlotOf(handles[0]));
    CHECK(f.backend->seen[1].slot == SlotOf(handles[1]));
    CHECK(f.backend->seen[0].slot != f.backend->seen[1].slot);
  }
}

}  // namespace
}  // namespace specd
