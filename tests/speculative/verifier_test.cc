#include "speculative/verifier.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/speculative/verifier_fixture.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

using Fixture = VerifierFixture;

TEST_SUITE("unit") {
  TEST_CASE("confirmed tokens are committed and the next round starts behind them") {
    Fixture f;
    const SequenceHandle s = f.Open();
    f.backend->script = {Confirm(2, {1, 2, 5}), Confirm(0, {4})};
    SequenceResult result = f.Round(s);
    CHECK(result.status == RoundStatus::kOk);
    CHECK(result.num_accepted == 2);
    CHECK(Kept(result) == std::vector<TokenId>{1, 2, 5});
    CHECK(result.total_kept == 3);
    result = f.Round(s);
    CHECK(result.total_kept == 4);
    CHECK(f.backend->seen[0].round_base == 0);
    CHECK(f.backend->seen[1].round_base == 3);
    CHECK(f.backend->seen[1].first_position == 3);
  }

  TEST_CASE("a finished sequence is answered FINISHED, reaches no backend and changes nothing") {
    Fixture f;
    const SequenceHandle s = f.Open(2);
    f.backend->script = {Confirm(2, {1, 2, 5})};
    SequenceResult result = f.Round(s);
    CHECK(result.num_kept == 2);
    CHECK(result.num_accepted == 2);
    CHECK(result.finish_reason == FinishReason::kLength);
    result = f.Round(s);
    CHECK(result.status == RoundStatus::kFinished);
    CHECK(result.finish_reason == FinishReason::kLength);
    CHECK(result.num_kept == 0);
    CHECK(result.total_kept == 2);
    CHECK(f.backend->seen.size() == 1);
  }

  TEST_CASE("EOS of the model profile finishes; ignore_eos drops it, stop ids stay") {
    Fixture f;
    const SequenceHandle plain = f.Open();
    SequenceParams params;
    params.ignore_eos = true;
    params.stop_token_ids = {5};
    const SequenceHandle ignoring = f.verifier->Open(params)->handle;
    f.backend->script = {Confirm(1, {7, 1}), Confirm(1, {7, 1}), Confirm(1, {7, 5})};
    CHECK(f.Round(plain).stop_token == 7);
    CHECK(f.Round(ignoring).finish_reason == FinishReason::kNone);
    const SequenceResult result = f.Round(ignoring);
    CHECK(result.finish_reason == FinishReason::kStop);
    CHECK(result.stop_token == 5);
    CHECK(result.total_kept == 4);
  }

  TEST_CASE("a bad row ends only its sequence, and tokens before it stand (CONTRACT 6)") {
    Fixture f;
    const SequenceHandle bad = f.Open();
    const SequenceHandle good = f.Open();
    ScriptedOutcome broken = Confirm(1, {1});
    broken.outcome.status = OutcomeStatus::kBadTargetRow;
    f.backend->script = {broken, Confirm(0, {6})};
    const SequenceInput inputs[] = {f.Input(bad), f.Input(good)};
    SequenceResult results[2];
    VerifyRound(f.verifier, inputs, results);
    CHECK(results[0].status == RoundStatus::kBadDistribution);
    CHECK(results[0].finish_reason == FinishReason::kError);
    CHECK(Kept(results[0]) == std::vector<TokenId>{1});
    CHECK(results[1].status == RoundStatus::kOk);
    CHECK(Kept(results[1]) == std::vector<TokenId>{6});
    CHECK(f.verifier->counters().bad_target_rows == 1);
  }

  TEST_CASE("a sequence that the backend has no room for is told so, and nothing of it changes") {
    Fixture f;
    const SequenceHandle large = f.Open();
    const SequenceHandle other = f.Open();
    ScriptedOutcome refused;
    refused.outcome.status = OutcomeStatus::kNoRoom;
    f.backend->script = {refused, Confirm(0, {6}), Confirm(0, {5})};
    const SequenceInput inputs[] = {f.Input(large), f.Input(other)};
    SequenceResult results[2];
    VerifyRound(f.verifier, inputs, results);
    CHECK(results[0].status == RoundStatus::kInvalid);
    CHECK(results[0].refusal == Refusal::kNoRoom);
    // The answer named a method although nothing was verified.
    CHECK(results[0].method == VerifyMethod::kAuto);
    CHECK(results[1].method == VerifyMethod::kExactMatch);
    CHECK(RefusalText(results[0].refusal).find("no_repeat_ngram") != std::string_view::npos);
    CHECK(results[0].finish_reason == FinishReason::kNone);
    CHECK(results[0].num_kept == 0);
    CHECK(Kept(results[1]) == std::vector<TokenId>{6});
    CHECK(f.verifier->counters().invalid_records == 1);
    CHECK(f.verifier->counters().sequence_rounds == 1);
    CHECK(Kept(f.Round(large)) == std::vector<TokenId>{5});
  }

  TEST_CASE("a bad row behind a token that finishes is never reached") {
    Fixture f;
    const SequenceHandle s = f.Open();
    ScriptedOutcome broken = Confirm(1, {7});
    broken.outcome.status = OutcomeStatus::kBadTargetRow;
    f.backend->script = {broken};
    const SequenceResult result = f.Round(s);
    CHECK(result.status == RoundStatus::kOk);
    CHECK(result.finish_reason == FinishReason::kStop);
  }

  TEST_CASE("unknown, refused and doubled records are answered and disturb nobody") {
    Fixture f;
    const SequenceHandle a = f.Open();
    const SequenceHandle b = f.Open();
    f.backend->script = {Confirm(0, {3})};
    SequenceInput inputs[] = {f.Input(b), f.Input(a), f.Input(12345), f.Input(a)};
    inputs[0].refusal = Refusal::kMaskRow;
    SequenceResult results[4];
    VerifyRound(f.verifier, inputs, results);
    CHECK(results[0].status == RoundStatus::kInvalid);
    CHECK(results[0].refusal == Refusal::kMaskRow);
    CHECK(results[1].status == RoundStatus::kOk);
    CHECK(results[1].num_kept == 1);
    CHECK(results[2].status == RoundStatus::kUnknownSequence);
    CHECK(results[3].status == RoundStatus::kInvalid);
    CHECK(results[3].refusal == Refusal::kTwice);
    CHECK(f.verifier->Find(b)->kept_tokens == 0);
    CHECK(f.verifier->counters().invalid_records == 2);
  }

  TEST_CASE("a stale handle costs nothing to the sequence that has its slot now") {
    // Bug: records were told apart by slot, so the new sequence was INVALID in a round that still
    // carried the old one.
    Fixture f;
    const SequenceHandle old = f.Open();
    REQUIRE(f.verifier->Close(old));
    const SequenceHandle fresh = f.Open();
    REQUIRE(SlotOf(fresh) == SlotOf(old));
    f.backend->script = {Confirm(0, {3})};
    const SequenceInput inputs[] = {f.Input(old), f.Input(fresh)};
    SequenceResult results[2];
    VerifyRound(f.verifier, inputs, results);
    CHECK(results[0].status == RoundStatus::kUnknownSequence);
    CHECK(results[1].status == RoundStatus::kOk);
    CHECK(results[1].num_kept == 1);
  }

  TEST_CASE("a device fault commits nothing") {
    Fixture f;
    const SequenceHandle s = f.Open();
    f.backend->next_status = absl::InternalError("sticky");
    const SequenceResult result = f.Round(s);
    CHECK(result.status == RoundStatus::kDeviceError);
    CHECK(result.method == VerifyMethod::kAuto);
    CHECK(result.num_kept == 0);
    CHECK(f.verifier->Find(s)->kept_tokens == 0);
    f.backend->next_status = absl::OkStatus();
    f.backend->script = {Confirm(0, {3})};
    CHECK(f.Round(s).total_kept == 1);
  }

  TEST_CASE("an abort cuts a running sequence once") {
    Fixture f;
    const SequenceHandle s = f.Open();
    f.backend->script = {Confirm(2, {1, 2, 3})};
    f.Round(s);
    REQUIRE(f.verifier->Finish(s, FinishReason::kAbort, 3) != nullptr);
    CHECK(f.verifier->Finish(s, FinishReason::kAbort, 2) == nullptr);
    CHECK(f.Round(s).status == RoundStatus::kFinished);
    CHECK(f.verifier->Find(s)->kept_tokens == 3);
  }

  TEST_CASE("a stop string moves a provisional end back, and outranks it at the same token") {
    Fixture f;
    const SequenceHandle earlier = f.Open(3);
    const SequenceHandle same = f.Open(3);
    f.backend->script = {Confirm(2, {1, 2, 3}), Confirm(2, {1, 2, 3})};
    f.Round(earlier);
    f.Round(same);
    REQUIRE(f.verifier->Finish(earlier, FinishReason::kStop, 2) != nullptr);
    CHECK(f.verifier->Find(earlier)->kept_tokens == 2);
    CHECK(f.verifier->Find(earlier)->finish_reason == FinishReason::kStop);
    REQUIRE(f.verifier->Finish(same, FinishReason::kStop, 3) != nullptr);
    CHECK(f.verifier->Find(same)->finish_reason == FinishReason::kStop);
    CHECK(f.verifier->Finish(same, FinishReason::kStop, 3) == nullptr);
    CHECK(f.verifier->Finish(same, FinishReason::kStop, 4) == nullptr);
  }

  TEST_CASE("seeds: given ones are used, missing ones are drawn and reported") {
    Fixture f;
    SequenceParams params;
    params.seed = 42;
    params.has_seed = true;
    CHECK(f.verifier->Open(params)->seed == 42);
    params.has_seed = false;
    const uint64_t first = f.verifier->Open(params)->seed;
    const uint64_t second = f.verifier->Open(params)->seed;
    CHECK(first != second);
  }

  TEST_CASE("too many sequences and a wrong EOS id are refused with the remedy") {
    Fixture f;
    for (int i = 0; i < 4; ++i) f.Open();
    const auto full = f.verifier->Open(SequenceParams{});
    CHECK(full.status().code() == absl::StatusCode::kResourceExhausted);
    CHECK(std::string(full.status().message()).find("max_sequences") != std::string::npos);

    VerifierOptions options;
    options.limits = {8, 1, 0};
    options.max_sequences = 1;
    options.eos_token_ids = {8};
    const auto wrong = Verifier::Create(options, std::make_unique<ScriptedBackend>());
    CHECK(std::string(wrong.status().message()).find("0 .. 7") != std::string::npos);
  }

  TEST_CASE("each temperature becomes the scale of its own rows, and the seed goes along") {
    Fixture f;
    SequenceParams params;
    params.temperature = 0.5;
    params.draft.temperature = 0.8;
    params.seed = 42;
    params.has_seed = true;
    const SequenceHandle s = f.verifier->Open(params)->handle;
    f.backend->script = {Confirm(0, {1})};
    f.Round(s);
    REQUIRE(f.backend->seen.size() == 1);
    // log2(e) = 1.4426950408889634 (CONTRACT 9.3), over 0.5 and over 0.8.
    CHECK(f.backend->seen[0].target_scale == static_cast<float>(2.8853900817779268));
    CHECK(f.backend->seen[0].draft_scale == static_cast<float>(1.8033688011112043));
    CHECK(f.backend->seen[0].seed == 42);
    CHECK(f.backend->seen[0].method == VerifyMethod::kExactMatch);
  }

  TEST_CASE("no stop string ends a sequence at min_tokens or before (CONTRACT 7)") {
    Fixture f;
    SequenceParams params;
    params.min_tokens = 2;
    const SequenceHandle s = f.Open(params);
    f.backend->script = {Confirm(2, {1, 2, 3})};
    f.Round(s);
    CHECK(f.verifier->Finish(s, FinishReason::kStop, 2) == nullptr);
    CHECK(f.verifier->Find(s)->finish_reason == FinishReason::kNone);
    CHECK(f.verifier->Find(s)->kept_tokens == 3);
    REQUIRE(f.verifier->Finish(s, FinishReason::kStop, 3) != nullptr);
    // An abort is no stop.
    const SequenceHandle aborted = f.Open(params);
    CHECK(f.verifier->Finish(aborted, FinishReason::kAbort, 0) != nullptr);
  }

  TEST_CASE("a finished sequence goes on naming its stop id, until a stop string takes its place") {
    Fixture f;
    const SequenceHandle s = f.Open();
    f.backend->script = {Confirm(2, {1, 2, 7})};
    CHECK(f.Round(s).stop_token == 7);
    SequenceResult result = f.Round(s);
    CHECK(result.status == RoundStatus::kFinished);
    CHECK(result.stop_token == 7);
    REQUIRE(f.verifier->Finish(s, FinishReason::kStop, 2) != nullptr);
    CHECK(f.verifier->Find(s)->stop_token == kNoToken);
    result = f.Round(s);
    CHECK(result.finish_reason == FinishReason::kStop);
    CHECK(result.stop_token == kNoToken);
    CHECK(result.total_kept == 2);
    CHECK(f.verifier->Finish(s, FinishReason::kStop, 1) == nullptr);  // moved once already
  }

  TEST_CASE("every count of a round is added to its own counter") {
    Fixture f;
    const SequenceHandle a = f.Open();
    const SequenceHandle b = f.Open();
    ScriptedOutcome odd = Confirm(1, {1, 5});
    odd.outcome.empty_residuals = 2;
    odd.outcome.invalid_drafts = 3;
    odd.outcome.point_masses = 1;
    ScriptedOutcome broken = Confirm(1, {1});
    broken.outcome.status = OutcomeStatus::kBadDraftRow;
    f.backend->script = {odd, broken, odd};
    const SequenceInput inputs[] = {f.Input(a, 3), f.Input(b, 2)};
    SequenceResult results[2];
    VerifyRound(f.verifier, inputs, results);
    CHECK(results[1].status == RoundStatus::kBadDistribution);
    Counters sums = f.verifier->counters();
    CHECK(sums.rounds == 1);
    CHECK(sums.sequence_rounds == 2);
    CHECK(sums.drafted == 5);
    CHECK(sums.accepted == 2);
    CHECK(sums.kept == 3);
    CHECK(sums.bad_draft_rows == 1);
    CHECK(sums.bad_target_rows == 0);
    CHECK(sums.empty_residuals == 2);
    CHECK(sums.invalid_drafts == 3);
    CHECK(sums.point_masses == 1);
    CHECK(sums.invalid_records == 0);
    f.Round(a);
    f.Round(b);  // finished: brings nothing to a backend
    sums = f.verifier->counters();
    CHECK(sums.rounds == 3);
    CHECK(sums.sequence_rounds == 3);
    CHECK(sums.drafted == 8);
    CHECK(sums.accepted == 3);
    CHECK(sums.kept == 5);
    CHECK(sums.empty_residuals == 4);
    CHECK(sums.invalid_drafts == 6);
    CHECK(sums.point_masses == 2);
  }

  TEST_CASE("a round that may not be committed changes nothing, and is asked about once") {
    VerifierFixture f;
    const SequenceHandle a = f.Open();
    const SequenceHandle b = f.Open();
    f.backend->script = {Confirm(1, {1, 5}), Confirm(0, {6}), Confirm(2, {1, 2, 7})};
    const SequenceInput inputs[] = {f.Input(a), f.Input(b), f.Input(b + 1)};
    SequenceResult results[3];
    int asked = 0;
    VerifyRound(f.verifier, inputs, results, [&] {
      ++asked;
      CHECK(f.backend->seen.size() == 2);
      CHECK(f.verifier->Find(a)->kept_tokens == 0);
      return false;
    });
    CHECK(asked == 1);
    CHECK(results[0].status == RoundStatus::kAborted);
    CHECK(results[1].status == RoundStatus::kAborted);
    CHECK(results[2].status == RoundStatus::kUnknownSequence);
    CHECK(results[0].num_kept == 0);
    CHECK(f.verifier->Find(a)->kept_tokens == 0);
    CHECK(f.verifier->counters().kept == 0);
    // The next round stands where the aborted one stood.
    CHECK(Kept(f.Round(a)) == std::vector<TokenId>{1, 2, 7});
    CHECK(f.backend->seen[2].first_position == 0);
    // Without anything to commit there is no question.
    VerifyRound(f.verifier, {&inputs[2], 1}, {results, 1}, [&] { return ++asked, false; });
    CHECK(asked == 1);
    f.backend->next_status = absl::InternalError("sticky");
    VerifyRound(f.verifier, {&inputs[1], 1}, {results, 1}, [&] { return ++asked, false; });
    CHECK(asked == 1);
    CHECK(results[0].status == RoundStatus::kDeviceError);
  }

  TEST_CASE("next tokens of a round that may be called off are written behind the question") {
    VerifierFixture f;
    TokenId ids[4];
    f.verifier->BindSlotOutput(0, {ids, MemorySpace::kHost});
    const SequenceHandle s = f.Open();
    const SequenceInput input = f.Input(s);
    SequenceResult result;
    bool is_let = false;
    int num_written = 0;
    f.backend->inspect = [](const RoundBatch& batch) { CHECK(batch.num_slot_outputs == 0); };
    f.backend->write_next = [&](const RoundBatch& batch) {
      CHECK(is_let);
      CHECK(f.verifier->Find(s)->kept_tokens == 0);
      REQUIRE(batch.num_slot_outputs == 1);
      CHECK(batch.slot_outputs[0].data == ids);
      REQUIRE(WritesSlot(batch, 0));
      TokenId next = kNoToken;
      WriteSlotRowOf(batch, 0, batch.slot_outputs[0], &next);
      CHECK(next == 5);
      ++num_written;
      return absl::OkStatus();
    };
    const auto verify = [&](bool answer) {
      f.backend->script = {Confirm(1, {1, 5})};
      VerifyRound(f.verifier, {&input, 1}, {&result, 1}, [&] { return is_let = answer; });
    };
    verify(false);
    CHECK(result.status == RoundStatus::kAborted);
    CHECK(num_written == 0);
    verify(true);
    CHECK(result.status == RoundStatus::kOk);
    CHECK(num_written == 1);
    // Where they cannot be written, nothing is committed.
    f.backend->write_next = [](const RoundBatch&) { return absl::InternalError("sticky"); };
    verify(true);
    CHECK(result.status == RoundStatus::kDeviceError);
    CHECK(f.verifier->Find(s)->kept_tokens == 2);
    // None are bound, none are written.
    f.verifier->BindSlotOutput(0, {});
    verify(true);
    CHECK(result.status == RoundStatus::kOk);
    CHECK(result.total_kept == 4);
  }
}

}  // namespace
}  // namespace specd
