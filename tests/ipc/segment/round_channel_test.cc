// Rounds through a segment: what goes in comes out, in order, over laps and between threads.
#include <doctest/doctest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "ipc/segment/daemon_channel.h"
#include "ipc/segment/engine_channel.h"
#include "tests/ipc/segment/ipc_test_support.h"

namespace specd {
namespace {

using test::DraftBuffers;
using test::kSequence0;
using test::Pair;
using test::TwoTokens;

TEST_SUITE("unit") {
  TEST_CASE("round channel: a round arrives as it was sent, and so does its answer") {
    Pair pair;
    const DraftBuffers first = TwoTokens();
    const DraftBuffers second{{}, {}, {42}, {}};
    const SequenceInput drafts[] = {first.View(kSequence0), second.View(kSequence0 + 1)};
    REQUIRE(pair.engine.Submit(77, drafts, 1000) == PushResult::kOk);
    REQUIRE(pair.daemon.HasSubmission());
    REQUIRE(pair.daemon.Take(&pair.copy, 2000));
    CHECK(pair.copy.round_id() == 77);
    CHECK(pair.copy.submit_ns() == 1000);
    CHECK(pair.copy.taken_ns() == 2000);
    CHECK_FALSE(pair.copy.malformed());
    REQUIRE(pair.copy.records().size() == 2);
    const SequenceInput& record = pair.copy.records()[0];
    CHECK(record.refusal == Refusal::kNone);
    CHECK(record.sequence == kSequence0);
    REQUIRE(record.draft.num_nodes == 2);
    CHECK(record.draft.tokens[0] == 10);
    CHECK(record.draft.tokens[1] == 11);
    CHECK(record.draft.kinds[0] == DraftKind::kSampled);
    CHECK(record.draft.kinds[1] == DraftKind::kOneHot);
    CHECK(record.draft.target_rows[2] == 2);
    CHECK(record.draft.draft_rows[0] == 0);
    CHECK(pair.copy.records()[1].draft.num_nodes == 0);
    CHECK(pair.copy.records()[1].draft.target_rows[0] == 42);
    CHECK_FALSE(pair.daemon.HasSubmission());
    CHECK_FALSE(pair.engine.Poll(&pair.completion));

    const TokenId tokens[] = {10, 12};
    const int32_t path[] = {0};
    const SequenceResult results[] = {{.sequence = kSequence0,
                                       .finish_reason = FinishReason::kLength,
                                       .num_accepted = 1,
                                       .num_kept = 2,
                                       .total_kept = 16,
                                       .tokens = tokens,
                                       .path = path},
                                      {.sequence = kSequence0 + 1,
                                       .status = RoundStatus::kBadDistribution,
                                       .refusal = Refusal::kDraftSum,
                                       .finish_reason = FinishReason::kError,
                                       .total_kept = 3,
                                       .bad_row = 41}};
    pair.daemon.Complete(pair.copy, results, 3000);
    REQUIRE(pair.engine.HasCompletion());
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.round_id == 77);
    CHECK(pair.completion.submit_ns == 1000);
    CHECK(pair.completion.taken_ns == 2000);
    CHECK(pair.completion.done_ns == 3000);
    CHECK_FALSE(pair.completion.malformed);
    REQUIRE(pair.completion.results.size() == 2);
    const SequenceResult& result = pair.completion.results[0];
    CHECK(result.sequence == kSequence0);
    CHECK(result.finish_reason == FinishReason::kLength);
    CHECK(result.num_accepted == 1);
    REQUIRE(result.num_kept == 2);
    CHECK(result.tokens[0] == 10);
    CHECK(result.tokens[1] == 12);
    CHECK(result.total_kept == 16);
    CHECK(result.stop_token == -1);
    CHECK(result.bad_row == kNoRow);
    CHECK(pair.completion.results[1].status == RoundStatus::kBadDistribution);
    CHECK(pair.completion.results[1].refusal == Refusal::kDraftSum);
    CHECK(pair.completion.results[1].bad_row == 41);
    CHECK(pair.engine.rounds_in_flight() == 0);
  }

  TEST_CASE("round channel: masks, side channel and scores cross, and only where they were sent") {
    Pair pair;
    const DraftBuffers all = test::TwoTokensWithAll();
    DraftBuffers argmax = TwoTokens();
    argmax.target_argmax = {7, 8, 9};
    const DraftBuffers plain = TwoTokens();
    SequenceInput discard = all.View(kSequence0 + 3);
    discard.discard = true;
    discard.draft.num_nodes = 1000;  // not looked at
    // Twice over the ring, so that every place has held something else before.
    for (int round = 0; round < 9; ++round) {
      const SequenceInput drafts[] = {all.View(kSequence0), argmax.View(kSequence0 + 1),
                                      plain.View(kSequence0 + 2), discard};
      const std::span<const SequenceInput> sent(drafts, 4);
      REQUIRE(pair.engine.Submit(1, sent, 1) == PushResult::kOk);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      const std::span<const SequenceInput> records = pair.copy.records();
      REQUIRE(records.size() == 4);
      for (const SequenceInput& record : records) REQUIRE(record.refusal == Refusal::kNone);
      CHECK(records[0].draft.draft_weights[1] == 0.25f);
      CHECK(records[0].draft.draft_masses[0] == 2.0);
      CHECK(records[0].mask_rows[1] == 29);
      CHECK(records[0].draft.target_argmax == nullptr);
      CHECK_FALSE(records[0].discard);
      CHECK(records[1].draft.target_argmax[2] == 9);
      CHECK(records[1].draft.target_rows == nullptr);
      CHECK(records[2].draft.draft_weights == nullptr);
      CHECK(records[2].draft.draft_masses == nullptr);
      CHECK(records[2].mask_rows == nullptr);
      CHECK(records[3].discard);
      CHECK(records[3].draft.num_nodes == 0);

      const TokenId tokens[] = {10, 12};
      const int32_t path[] = {0};
      const TokenScore scores[] = {{10, -1, 1}, {3, -2, 2}, {12, -3, 3}, {4, -4, 4}};
      const SequenceResult results[] = {{.sequence = kSequence0,
                                         .num_accepted = 1,
                                         .num_kept = 2,
                                         .total_kept = 2,
                                         .tokens = tokens,
                                         .path = path,
                                         .scores_per_token = 2,
                                         .scores = scores},
                                        {.sequence = kSequence0 + 1,
                                         .status = RoundStatus::kInvalid,
                                         .refusal = Refusal::kArgmax},
                                        {.sequence = kSequence0 + 2,
                                         .num_accepted = 1,
                                         .num_kept = 2,
                                         .total_kept = 2,
                                         .tokens = tokens,
                                         .path = path},
                                        {.sequence = kSequence0 + 3}};
      pair.daemon.Complete(pair.copy, results, 3);
      REQUIRE(pair.engine.Poll(&pair.completion));
      REQUIRE(pair.completion.results.size() == 4);
      const SequenceResult& scored = pair.completion.results[0];
      REQUIRE(scored.scores_per_token == 2);
      for (int i = 0; i < 4; ++i) {
        CHECK(scored.scores[i].id == scores[i].id);
        CHECK(scored.scores[i].value == scores[i].value);
        CHECK(scored.scores[i].rank == scores[i].rank);
      }
      CHECK(pair.completion.results[1].refusal == Refusal::kArgmax);
      CHECK(pair.completion.results[2].scores == nullptr);
    }
  }

  TEST_CASE("round channel: kinds and draft rows may be left out") {
    Pair pair;
    // An earlier round leaves other kinds and rows in the same place.
    for (int i = 0; i < 4; ++i) {
      REQUIRE(pair.Submit(1, TwoTokens()) == PushResult::kOk);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      pair.CompleteEmpty();
      REQUIRE(pair.engine.Poll(&pair.completion));
    }
    SequenceInput draft = TwoTokens().View(kSequence0);
    const DraftBuffers buffers = TwoTokens();
    draft = buffers.View(kSequence0);
    draft.draft.kinds = nullptr;
    draft.draft.draft_rows = nullptr;
    REQUIRE(pair.engine.Submit(2, {&draft, 1}, 1) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    REQUIRE(pair.copy.records()[0].refusal == Refusal::kNone);
    CHECK(pair.copy.records()[0].draft.kinds[0] == DraftKind::kOneHot);
    pair.CompleteEmpty();
    // A sampled token without rows is not judged by rows of an earlier round.
    draft.draft.kinds = buffers.kinds.data();
    REQUIRE(pair.engine.Submit(3, {&draft, 1}, 1) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    CHECK(pair.copy.records()[0].refusal == Refusal::kNoDraftRow);
  }

  TEST_CASE("round channel: draft tokens by slot are not looked for in the record") {
    Pair pair;
    RowLimits limits;
    limits.target_rows = 100;
    limits.draft_rows = 50;
    limits.has_draft_tokens = true;
    pair.daemon.SetRowLimits(limits);
    const DraftBuffers buffers = TwoTokens();
    SequenceInput draft = buffers.View(kSequence0);
    draft.draft.tokens = nullptr;
    draft.drafts_by_slot = true;
    const SequenceInput drafts[] = {draft, buffers.View(kSequence0 + 1)};
    REQUIRE(pair.engine.Submit(1, drafts, 1) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    const SequenceInput& by_slot = pair.copy.records()[0];
    REQUIRE(by_slot.refusal == Refusal::kNone);
    CHECK(by_slot.drafts_by_slot);
    CHECK(by_slot.draft.tokens == nullptr);
    CHECK(by_slot.draft.num_nodes == 2);
    CHECK(by_slot.draft.target_rows[2] == buffers.target_rows[2]);
    CHECK(by_slot.draft.kinds[0] == DraftKind::kSampled);
    CHECK_FALSE(pair.copy.records()[1].drafts_by_slot);
    CHECK(pair.copy.records()[1].draft.tokens != nullptr);
  }

  TEST_CASE("round channel: only a session that may stage takes a staged round") {
    Pair remote;
    const DraftBuffers buffers = TwoTokens();
    const SequenceInput draft = buffers.View(kSequence0);
    REQUIRE(remote.engine.SubmitStaged(1, {&draft, 1}, 1) == PushResult::kOk);
    REQUIRE(remote.daemon.Take(&remote.copy, 2));
    CHECK(remote.copy.malformed());
    CHECK_FALSE(remote.copy.staged());

    Pair local;
    local.daemon.AllowStaging();
    REQUIRE(local.engine.SubmitStaged(1, {&draft, 1}, 1) == PushResult::kOk);
    REQUIRE(local.Submit(2, buffers) == PushResult::kOk);
    REQUIRE(local.daemon.Take(&local.copy, 2));
    CHECK(local.copy.staged());
    CHECK(local.copy.records().size() == 1);
    REQUIRE(local.daemon.Take(&local.copy, 2));
    CHECK_FALSE(local.copy.staged());
  }

  TEST_CASE("round channel: at most ring_depth rounds are in flight, and none is lost over laps") {
    Pair pair;
    uint64_t submitted = 0;
    uint64_t completed = 0;
    for (int lap = 0; lap < 5; ++lap) {
      for (int i = 0; i < 4; ++i) REQUIRE(pair.Submit(submitted++, TwoTokens()) == PushResult::kOk);
      REQUIRE(pair.Submit(999, TwoTokens()) == PushResult::kFull);
      // Taken is not enough: the answer must have been polled.
      for (int i = 0; i < 4; ++i) {
        REQUIRE(pair.daemon.Take(&pair.copy, 2));
        pair.CompleteEmpty();
        REQUIRE(pair.Submit(999, TwoTokens()) == PushResult::kFull);
      }
      REQUIRE_FALSE(pair.daemon.Take(&pair.copy, 2));
      for (int i = 0; i < 4; ++i) {
        REQUIRE(pair.engine.Poll(&pair.completion));
        REQUIRE(pair.completion.round_id == completed++);
      }
      REQUIRE_FALSE(pair.engine.Poll(&pair.completion));
    }
    CHECK(completed == 20);
  }

  TEST_CASE("round channel: several rounds may be taken before the first is completed") {
    Pair pair;
    SubmissionCopy second(pair.segment.limits());
    REQUIRE(pair.Submit(1, TwoTokens()) == PushResult::kOk);
    REQUIRE(pair.Submit(2, TwoTokens(), kSequence0 + 1) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    REQUIRE(pair.daemon.Take(&second, 2));
    CHECK(second.round_id() == 2);
    pair.CompleteEmpty();
    const SequenceResult result;
    pair.daemon.Complete(second, {&result, 1}, 3);
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.round_id == 1);
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.round_id == 2);
  }

  TEST_CASE("round channel: sequence states and process states cross at once") {
    Pair pair;
    CHECK(pair.engine.ReadState(7) == SequenceState{});
    pair.daemon.WriteState(7, {3, SPECD_FINISH_STOP, 12});
    CHECK(pair.engine.ReadState(7) == SequenceState{3, SPECD_FINISH_STOP, 12});
    CHECK(pair.engine.ReadState(6) == SequenceState{});
    CHECK(std::isnan(pair.engine.ReadLogprob(7, pair.engine.ReadState(7))));
    // A reader that was overtaken between the word and the sum still has the pair that belonged
    // together.
    pair.daemon.WriteState(7, {3, SPECD_FINISH_LENGTH, 12}, -12.5);
    const SequenceState first = pair.engine.ReadState(7);
    pair.daemon.WriteState(7, {3, SPECD_FINISH_STOP, 9, true}, -9.5);
    CHECK(pair.engine.ReadLogprob(7, first) == -12.5);
    CHECK(pair.engine.ReadLogprob(7, pair.engine.ReadState(7)) == -9.5);
    CHECK(pair.engine.daemon_state() == DaemonState::kStarting);
    pair.daemon.SetState(DaemonState::kDraining);
    CHECK(pair.engine.daemon_state() == DaemonState::kDraining);
    pair.engine.SetState(EngineState::kClosing);
    CHECK(pair.segment.page()->engine.state.load() == static_cast<uint32_t>(EngineState::kClosing));
  }

  TEST_CASE("round channel: two threads that only look see whole rounds") {
    // Without bells nothing but the rings orders the two threads: a word written after its publish
    // is a torn round here, or a data race under the thread sanitizer.
    constexpr uint64_t kRounds = 5000;
    Pair pair;
    uint64_t wrong = 0;
    std::thread daemon_thread([&] {
      for (uint64_t n = 0; n < kRounds; ++n) {
        while (!pair.daemon.Take(&pair.copy, 2)) std::this_thread::yield();
        const bool is_right = pair.copy.round_id() == n && pair.copy.records().size() == 1 &&
                              pair.copy.records()[0].refusal == Refusal::kNone &&
                              pair.copy.records()[0].draft.tokens[1] == 11;
        if (!is_right) ++wrong;
        pair.daemon.Complete(pair.copy, std::vector<SequenceResult>(pair.copy.records().size()), 3);
      }
    });
    uint64_t completed = 0;
    for (uint64_t n = 0; completed < kRounds;) {
      if (n < kRounds && pair.Submit(n, TwoTokens()) == PushResult::kOk) ++n;
      while (pair.engine.Poll(&pair.completion)) ++completed;
      std::this_thread::yield();
    }
    daemon_thread.join();
    CHECK(wrong == 0);
  }

  TEST_CASE("round channel: two threads that sleep for each other finish every round") {
    constexpr uint64_t kRounds = 3000;
    Pair pair;
    const WaitOptions sleep{0, absl::Seconds(30)};
    std::thread daemon_thread([&] {
      for (uint64_t n = 0; n < kRounds;) {
        if (!pair.daemon.submission_bell().Wait(sleep, [&] { return pair.daemon.HasSubmission(); }))
          return;
        while (pair.daemon.Take(&pair.copy, 2)) {
          const TokenId token = static_cast<TokenId>(pair.copy.round_id() * 3);
          const SequenceResult result = {
              .sequence = kSequence0, .num_kept = 1, .total_kept = 1, .tokens = &token};
          pair.daemon.Complete(pair.copy, {&result, 1}, 3);
          ++n;
        }
      }
    });
    uint64_t completed = 0;
    uint64_t wrong = 0;
    for (uint64_t n = 0; completed < kRounds;) {
      if (n < kRounds && pair.Submit(n, TwoTokens()) == PushResult::kOk) {
        ++n;
        continue;
      }
      if (!pair.engine.WaitCompletion(sleep)) break;
      while (pair.engine.Poll(&pair.completion)) {
        const bool is_right =
            pair.completion.round_id == completed &&
            pair.completion.results[0].tokens[0] == static_cast<TokenId>(completed * 3);
        if (!is_right) ++wrong;
        ++completed;
      }
    }
    daemon_thread.join();
    CHECK(completed == kRounds);
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace specd
