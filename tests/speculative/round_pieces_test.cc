// Rounds in pieces: a cut changes no answer, and between two pieces the table of sequences may
// change.
#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "tests/speculative/verifier_fixture.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

// A round of three sequences, each a piece of its own.
struct CutRound : VerifierFixture {
  CutRound() : VerifierFixture({}, /*piece_work=*/1) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = Input(Open(), 3);
      const auto token = static_cast<TokenId>(i);
      backend->script.push_back(Confirm(1, {token, token}));
    }
    backend->inspect = [this](const RoundBatch& batch) { runs.push_back(batch.num_tasks); };
  }
  void Begin() { verifier->BeginRound(inputs, results, false); }
  void Finish() {
    while (verifier->RunPiece()) continue;
    verifier->EndRound(results);
  }
  uint32_t KeptBy(size_t i) { return verifier->Find(inputs[i].sequence)->kept_tokens; }

  std::array<SequenceInput, 3> inputs;
  std::array<SequenceResult, 3> results;
  std::vector<int32_t> runs;  // the tasks of each call of the backend
};

// Sees what a recorder sees.
struct CountingObserver : RoundObserver {
  void Begin(RoundBatch* batch) override {
    begun.push_back(batch->num_tasks);
    batch->decisions = decisions.data();
    batch->decisions_stride = 4;
  }
  void Ran(const RanRound& round) override {
    ran.push_back(round.batch.num_tasks);
    for (int32_t i = 0; i < round.batch.num_tasks; ++i) {
      tokens.push_back(round.batch.tokens[i * round.batch.tokens_stride]);
      kept_before.push_back(round.sequences[static_cast<size_t>(i)]->kept_tokens);
    }
  }
  void Committed(std::span<const SequenceResult> results, std::span<const uint32_t>) override {
    committed.push_back(static_cast<int32_t>(results.size()));
  }

  std::array<PlaceDecision, 16> decisions;
  std::vector<int32_t> begun;
  std::vector<int32_t> ran;
  std::vector<int32_t> committed;
  Ids tokens;
  std::vector<uint32_t> kept_before;
};

TEST_SUITE("unit") {
  TEST_CASE("a round runs in pieces of whole sequences within the bound") {
    // Four sequences of 4 rows with 8 elements are 128.
    for (const auto& [bound, pieces] : {std::pair<int64_t, std::vector<int32_t>>{1, {1, 1, 1, 1}},
                                        {64, {2, 2}},
                                        {127, {3, 1}},
                                        {128, {4}},
                                        {0, {4}}}) {
      const int64_t piece_work = bound;
      CAPTURE(piece_work);
      VerifierFixture f({}, piece_work);
      std::vector<int32_t> runs;
      f.backend->inspect = [&](const RoundBatch& batch) { runs.push_back(batch.num_tasks); };
      std::vector<SequenceInput> inputs;
      for (TokenId id = 0; id < 4; ++id) {
        inputs.push_back(f.Input(f.Open()));
        f.backend->script.push_back(Confirm(0, {id}));
      }
      std::vector<SequenceResult> results(4);
      VerifyRound(f.verifier, inputs, results);
      CHECK(runs == pieces);
      for (TokenId id = 0; id < 4; ++id) CHECK(Kept(results[static_cast<size_t>(id)]) == Ids{id});
      CHECK(f.verifier->counters().rounds == 1);
    }
  }

  TEST_CASE("a device ran every round as one piece; it has whole tasks in each") {
    VerifierFixture f({}, 0);
    auto owned = std::make_unique<ScriptedBackend>();
    ScriptedBackend* const backend = owned.get();
    backend->uuid = "GPU-1";
    auto created = Verifier::Create(
        {.limits = {8, 4, 3}, .max_sequences = 4, .eos_token_ids = {}, .piece_work = 1},
        std::move(owned));
    REQUIRE(created.ok());
    REQUIRE((*created)->BindTarget(f.View()).ok());
    std::vector<int32_t> runs;
    backend->inspect = [&](const RoundBatch& batch) { runs.push_back(batch.num_tasks); };
    backend->script = {Confirm(0, {1}), Confirm(0, {2})};
    std::vector<SequenceInput> inputs;
    for (int i = 0; i < 2; ++i) inputs.push_back(f.Input((*created)->Open({})->handle));
    std::vector<SequenceResult> results(2);
    VerifyRound((*created), inputs, results);
    CHECK(runs == std::vector<int32_t>{1, 1});
    CHECK(Kept(results[0]) == Ids{1});
    CHECK(Kept(results[1]) == Ids{2});
  }

  TEST_CASE("rows of an argmax tensor are never read and do not cut a round") {
    VerifierFixture f({}, /*piece_work=*/33);
    SequenceParams greedy;
    greedy.temperature = 0;
    const TokenId argmax[4] = {1, 2, 3, 4};
    std::vector<SequenceInput> inputs;
    for (int i = 0; i < 3; ++i) {
      inputs.push_back(f.Input(f.Open(greedy)));
      inputs.back().draft.target_argmax = argmax;
      f.backend->script.push_back(Confirm(0, {1}));
    }
    int runs = 0;
    f.backend->inspect = [&](const RoundBatch&) { ++runs; };
    std::vector<SequenceResult> results(3);
    VerifyRound(f.verifier, inputs, results);
    CHECK(runs == 1);
  }

  TEST_CASE("between two pieces nothing of the round is kept; then all of it is") {
    CutRound r;
    r.Begin();
    CHECK(r.verifier->RunPiece());
    CHECK(r.verifier->RunPiece());
    CHECK(r.runs == std::vector<int32_t>{1, 1});
    for (size_t i = 0; i < 3; ++i) CHECK(r.KeptBy(i) == 0);
    CHECK_FALSE(r.verifier->RunPiece());
    r.verifier->EndRound(r.results);
    for (size_t i = 0; i < 3; ++i) {
      const auto token = static_cast<TokenId>(i);
      CHECK(r.results[i].status == RoundStatus::kOk);
      CHECK(Kept(r.results[i]) == Ids{token, token});
      CHECK(r.KeptBy(i) == 2);
    }
  }

  TEST_CASE("sequences that end between two pieces are answered as if they had ended before") {
    CutRound r;
    r.Begin();
    CHECK(r.verifier->RunPiece());
    // The first has run, the third has not.
    CHECK(r.verifier->Finish(r.inputs[0].sequence, FinishReason::kAbort, 0) != nullptr);
    CHECK(r.verifier->Close(r.inputs[2].sequence));
    CHECK(r.verifier->Find(r.inputs[2].sequence) == nullptr);
    r.Finish();
    CHECK(r.runs == std::vector<int32_t>{1, 1, 1});
    CHECK(r.results[0].status == RoundStatus::kFinished);
    CHECK(r.results[0].finish_reason == FinishReason::kAbort);
    CHECK(r.results[0].num_kept == 0);
    CHECK(r.KeptBy(0) == 0);
    CHECK(Kept(r.results[1]) == Ids{1, 1});
    CHECK(r.results[2].status == RoundStatus::kUnknownSequence);
    CHECK(r.results[2].num_kept == 0);
  }

  TEST_CASE("a sequence that is closed between two pieces leaves its slot when the round ends") {
    CutRound r;
    SequenceParams params;
    params.logit_bias = {{3, 1.5f}};
    REQUIRE(r.verifier->Close(r.inputs[2].sequence));
    r.inputs[2] = r.Input(r.Open(params));
    r.Begin();
    CHECK(r.verifier->RunPiece());
    Sequence removed;
    CHECK(r.verifier->Close(r.inputs[2].sequence, &removed));
    const SequenceHandle other = r.Open();
    CHECK(SlotOf(other) != SlotOf(r.inputs[2].sequence));
    CHECK(r.verifier->sequences().num_taken() == 4);
    // The task still reads the rules of the closed sequence.
    r.backend->inspect = [&](const RoundBatch& batch) {
      if (batch.tasks[0].slot != SlotOf(r.inputs[2].sequence)) return;
      REQUIRE(batch.tasks[0].edits.num_edits == 1);
      CHECK(batch.tasks[0].edits.edits[0].id == 3);
    };
    r.Finish();
    CHECK(r.verifier->sequences().num_taken() == 3);
    CHECK(SlotOf(r.Open()) == SlotOf(r.inputs[2].sequence));
  }

  TEST_CASE("a round that is called off between two pieces changes nothing and can come again") {
    CutRound r;
    TokenId next[4] = {-7, -7, -7, -7};
    r.verifier->BindSlotOutput(0, {.data = next});
    int written = 0;
    r.backend->write_next = [&](const RoundBatch&) {
      ++written;
      return absl::OkStatus();
    };
    r.Begin();
    CHECK(r.verifier->RunPiece());
    r.verifier->CallOffRound(r.results);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(r.results[i].status == RoundStatus::kAborted);
      CHECK(r.results[i].num_kept == 0);
      CHECK(r.KeptBy(i) == 0);
    }
    CHECK(written == 0);
    CHECK(r.verifier->counters().rounds == 0);
    r.backend->script = {Confirm(0, {4}), Confirm(0, {5}), Confirm(0, {6})};
    r.Begin();
    r.Finish();
    CHECK(Kept(r.results[2]) == Ids{6});
    CHECK(written == 1);
    CHECK(r.verifier->counters().rounds == 1);
  }

  TEST_CASE("next tokens are held back to the end, and go to the arrays that are bound then") {
    CutRound r;
    TokenId left[4] = {};
    TokenId joined[4] = {};
    r.verifier->BindSlotOutput(1, {.data = left});
    std::vector<const void*> arrays;
    r.backend->write_next = [&](const RoundBatch& batch) {
      CHECK(batch.num_tasks == 3);
      for (int32_t i = 0; i < batch.num_slot_outputs; ++i) {
        arrays.push_back(batch.slot_outputs[i].data);
      }
      return absl::OkStatus();
    };
    r.backend->inspect = [&](const RoundBatch& batch) { CHECK(batch.num_slot_outputs == 0); };
    r.Begin();
    CHECK(r.verifier->RunPiece());
    r.verifier->BindSlotOutput(1, {});
    r.verifier->BindSlotOutput(2, {.data = joined});
    r.Finish();
    CHECK(arrays == std::vector<const void*>{joined});
  }

  TEST_CASE("an observer sees a cut round once, in whole, before anything of it is kept") {
    CutRound r;
    CountingObserver observer;
    r.verifier->Observe(&observer);
    std::vector<const PlaceDecision*> decisions;
    r.backend->inspect = [&](const RoundBatch& batch) { decisions.push_back(batch.decisions); };
    r.Begin();
    CHECK(r.verifier->RunPiece());
    r.Finish();
    CHECK(observer.begun == std::vector<int32_t>{3});
    CHECK(observer.ran == std::vector<int32_t>{3});
    CHECK(observer.committed == std::vector<int32_t>{3});
    CHECK(observer.tokens == Ids{0, 1, 2});
    CHECK(observer.kept_before == std::vector<uint32_t>{0, 0, 0});
    const PlaceDecision* const first = observer.decisions.data();
    CHECK(decisions == std::vector<const PlaceDecision*>{first, first + 4, first + 8});
  }

  TEST_CASE("the backend fails in a later piece: nothing is kept, and no further piece runs") {
    CutRound r;
    r.Begin();
    CHECK(r.verifier->RunPiece());
    r.backend->next_status = absl::InternalError("sticky");
    CHECK_FALSE(r.verifier->RunPiece());
    r.verifier->EndRound(r.results);
    CHECK(r.runs.size() == 2);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(r.results[i].status == RoundStatus::kDeviceError);
      CHECK(r.KeptBy(i) == 0);
    }
  }

  TEST_CASE("a second record of a sequence is refused in whichever piece it is") {
    CutRound r;
    r.inputs[2].sequence = r.inputs[0].sequence;
    r.Begin();
    r.Finish();
    CHECK(r.runs == std::vector<int32_t>{1, 1});
    CHECK(r.results[2].status == RoundStatus::kInvalid);
    CHECK(r.results[2].refusal == Refusal::kTwice);
    CHECK(r.results[2].total_kept == 0);
  }
}

}  // namespace
}  // namespace specd
