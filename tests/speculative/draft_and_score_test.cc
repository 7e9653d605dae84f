#include <doctest/doctest.h>

#include <vector>

#include "tests/speculative/verifier_fixture.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

using Fixture = VerifierFixture;

DraftResult Draw(Fixture& f, const DraftInput& input) {
  DraftResult result;
  SampleDraftAtOnce(f.verifier, {&input, 1}, {&result, 1});
  return result;
}

ScoreResult ScoreOf(Fixture& f, const ScoreInput& input) {
  ScoreResult result;
  ScoreAtOnce(f.verifier, {&input, 1}, {&result, 1});
  return result;
}

ScriptedOutcome Children(std::vector<DraftSample> samples) {
  ScriptedOutcome scripted;
  scripted.outcome.num_tokens = static_cast<int32_t>(samples.size());
  scripted.samples = std::move(samples);
  return scripted;
}

TEST_SUITE("unit") {
  TEST_CASE("SampleDraft draws from a draft row at its depth, by the drafter's own parameters") {
    Fixture f;
    SequenceParams params;
    params.temperature = 0.25;
    params.top_k = 4;
    params.draft.temperature = 0.5;
    params.draft.top_k = 2;
    params.seed = 9;
    params.has_seed = true;
    params.presence_penalty = 1;
    const SequenceHandle s = f.Open(params);
    f.backend->script = {Confirm(1, {1, 2}),
                         Children({{3, 2, 0.5f, DraftKind::kSampledRest, 2.0},
                                   {4, 1, 0.25f, DraftKind::kSampledRest, 2.0}})};
    f.Round(s);

    f.backend->inspect = [&](const RoundBatch& batch) {
      const Task& task = batch.tasks[0];
      CHECK(task.kind == TaskKind::kSampleDraft);
      CHECK(batch.target.data == f.draft_elements);
      CHECK(task.draft.target_rows[0] == 4);
      CHECK(task.target_scale == static_cast<float>(2.8853900817779268));  // log2(e) / 0.5
      CHECK(task.target_filters.top_k == 2);
      CHECK(task.seed == 9);
      CHECK(task.round_base == 2);
      CHECK(task.first_position == 4);
      CHECK(task.first_node == 6);
      CHECK(task.num_children == 3);
      CHECK(task.sampling == DraftSampling::kWithoutReplacement);
      CHECK(task.edits.num_edits == 0);
      CHECK_FALSE(task.scores.enabled);
    };
    const TokenId prefix[] = {5, 6};
    DraftInput input;
    input.sequence = s;
    input.row = 4;
    input.prefix = prefix;
    input.num_prefix = 2;
    input.sampling = DraftSampling::kWithoutReplacement;
    input.num_children = 3;
    input.first_node = 6;
    const DraftResult result = Draw(f, input);
    CHECK(result.status == RoundStatus::kOk);
    REQUIRE(result.children.size() == 2);
    CHECK(result.children[0].count == 2);
    CHECK(result.children[1].id == 4);
    CHECK(f.verifier->Find(s)->kept_tokens == 2);
  }

  TEST_CASE("with draft_edits the sequence's rules hold, each prefix counted for its own child") {
    Fixture f;
    SequenceParams params;
    params.frequency_penalty = 1;
    params.min_tokens = 2;
    params.draft.edits = true;
    const SequenceHandle s = f.Open(params);
    const uint32_t words[] = {255};
    f.verifier->BindMask({words, 1, 1});
    const TokenId prefixes[2][2] = {{5, 5}, {6, 3}};
    DraftInput inputs[2];
    for (int i = 0; i < 2; ++i) {
      inputs[i].sequence = s;
      inputs[i].prefix = prefixes[i];
      inputs[i].num_prefix = i == 0 ? 2 : 1;
      inputs[i].mask_row = i - 1;
    }
    f.backend->inspect = [](const RoundBatch& batch) {
      const PlaceEdits& first = batch.tasks[0].places[0];
      REQUIRE(first.num_overrides == 1);
      CHECK(first.overrides[0].id == 5);
      CHECK(first.overrides[0].count == 2);
      CHECK(first.mask_row == -1);
      CHECK_FALSE(first.below_min_tokens);
      const PlaceEdits& second = batch.tasks[1].places[0];
      REQUIRE(second.num_overrides == 1);
      CHECK(second.overrides[0].id == 6);
      CHECK(second.overrides[0].count == 1);
      CHECK(second.mask_row == 0);
      CHECK(second.below_min_tokens);
      CHECK(batch.tasks[0].edits.penalties.frequency == 1);
    };
    f.backend->script = {Children({{1, 1, 1, {}, 1}}), Children({{2, 1, 1, {}, 1}})};
    DraftResult results[2];
    SampleDraftAtOnce(f.verifier, inputs, results);
    CHECK(results[1].children[0].id == 2);
  }

  TEST_CASE("more draft rows of one sequence than it has places for are refused, not mixed up") {
    auto owned = std::make_unique<ScriptedBackend>();
    ScriptedBackend* backend = owned.get();
    auto verifier = *Verifier::Create({{8, 4, 1}, 1, {}}, std::move(owned));
    const Fixture f;
    REQUIRE(verifier->BindDraft(f.View()).ok());
    SequenceParams params;
    params.frequency_penalty = 1;
    params.draft.edits = true;
    DraftInput inputs[3];
    for (DraftInput& input : inputs) {
      input.prefix = f.drafts;
      input.num_prefix = 1;
    }
    const SequenceHandle s = verifier->Open(params)->handle;
    for (DraftInput& input : inputs) input.sequence = s;
    for (int turn = 0; turn < 2; ++turn) {  // the next call has its room again
      backend->script = {Children({{1, 1, 1, {}, 1}}), Children({{1, 1, 1, {}, 1}})};
      DraftResult results[3];
      SampleDraftAtOnce(verifier, inputs, results);
      CHECK(results[1].status == RoundStatus::kOk);
      CHECK(results[2].status == RoundStatus::kInvalid);
      CHECK(results[2].reason.find("max_draft + 1") != std::string_view::npos);
    }
  }

  TEST_CASE("a bad draft row ends nothing; what cannot be drawn is named") {
    Fixture f;
    const SequenceHandle s = f.Open();
    DraftInput input;
    input.sequence = s;
    ScriptedOutcome bad;
    bad.outcome.status = OutcomeStatus::kBadTargetRow;
    f.backend->script = {bad};
    CHECK(Draw(f, input).status == RoundStatus::kBadDistribution);
    CHECK(f.verifier->counters().bad_draft_rows == 1);
    CHECK(f.verifier->Find(s)->finish_reason == FinishReason::kNone);
    bad.outcome.status = OutcomeStatus::kNoRoom;
    f.backend->script = {bad};
    const DraftResult no_room = Draw(f, input);
    CHECK(no_room.status == RoundStatus::kInvalid);
    CHECK(no_room.reason.find("more memory") != std::string_view::npos);
    CHECK(f.verifier->counters().bad_draft_rows == 1);

    const auto reason = [&](auto change) {
      DraftInput changed = input;
      change(changed);
      const DraftResult result = Draw(f, changed);
      CHECK(result.status == RoundStatus::kInvalid);
      return result.reason;
    };
    const uint32_t words[] = {255};
    f.verifier->BindMask({words, 1, 1});
    CHECK(reason([](DraftInput& i) { i.mask_row = 0; }).find("mask_row") == 0);
    input.sequence = 99;
    CHECK(Draw(f, input).status == RoundStatus::kUnknownSequence);
    f.verifier->Finish(s, FinishReason::kAbort, 0);
    input.sequence = s;
    CHECK(Draw(f, input).status == RoundStatus::kFinished);
  }

  TEST_CASE("Score hands out the scores of given ids, and touches no sequence") {
    Fixture f;
    const TokenId ids[] = {1, 2, 3, 4};
    const TokenId chosen[] = {5};
    ScoreInput input;
    input.rows = f.rows;
    input.ids = ids;
    input.num_ids = 4;
    input.request = {true, ScoreMode::kRawLogprob, 1, chosen, 1};
    ScriptedOutcome scripted = Confirm(0, {1, 2});
    scripted.outcome.status = OutcomeStatus::kBadTargetRow;  // the third row is bad
    scripted.scores = {{{1, -1, 1}, {1, -1, 1}, {5, -5, 5}}, {{2, -2, 2}, {1, -1, 1}, {5, -6, 6}}};
    f.backend->script = {scripted};
    f.backend->inspect = [&](const RoundBatch& batch) {
      CHECK(batch.tasks[0].kind == TaskKind::kScore);
      CHECK(batch.tasks[0].draft.num_nodes == 4);
      CHECK(batch.tasks[0].draft.tokens == ids);
      CHECK(batch.tasks[0].target_scale == static_cast<float>(1.4426950408889634));
      CHECK(batch.tasks[0].places == nullptr);
    };
    const ScoreResult result = ScoreOf(f, input);
    CHECK(result.status == RoundStatus::kBadDistribution);
    CHECK(result.num_scored == 2);
    REQUIRE(result.scores_per_token == 3);
    CHECK(result.scores[3].id == 2);
    CHECK(result.scores[5].value == -6);
  }

  TEST_CASE("nothing to score is nothing wrong") {
    Fixture f;
    ScoreInput nothing;
    nothing.request.enabled = true;
    CHECK(ScoreOf(f, nothing).status == RoundStatus::kOk);
    CHECK(f.backend->seen.empty());
  }
}

}  // namespace
}  // namespace specd
