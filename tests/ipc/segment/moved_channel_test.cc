// A channel that goes on at another daemon, over a segment of its own.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "ipc/segment/daemon_channel.h"
#include "ipc/segment/engine_channel.h"
#include "tests/ipc/segment/ipc_test_support.h"
#include "tests/ipc/segment/stream_rounds.h"

namespace specd {
namespace {

using test::DraftBuffers;
using test::kSequence0;
using test::Pair;
using test::TwoTokens;

// The daemon of a fresh segment, which takes the old one's place in the engine's end.
struct Next {
  explicit Next(Pair* pair) : segment(test::MakeSegment()), daemon(&pair->segment) {
    std::swap(pair->segment, segment);
    daemon = DaemonChannel(&pair->segment);
    daemon.SetRowLimits({100, 50, 30});
    pair->engine.MoveFrom(segment);
  }
  Segment segment;
  DaemonChannel daemon;
};

TEST_SUITE("unit") {
  TEST_CASE("moved channel: what was in flight is submitted again, answered or not") {
    // Each number of rounds before, so that a ring's laps and places differ on the two sides.
    for (uint64_t num_before = 0; num_before < 6; ++num_before) {
      Pair pair;
      for (uint64_t i = 0; i < num_before; ++i) {
        REQUIRE(pair.Submit(i, TwoTokens()) == PushResult::kOk);
        REQUIRE(pair.daemon.Take(&pair.copy, 2));
        pair.CompleteEmpty();
        REQUIRE(pair.engine.Poll(&pair.completion));
      }
      for (int32_t i = 0; i < 3; ++i) {
        const DraftBuffers draft{
            {20 + i}, {DraftKind::kSampled}, {1, 2}, {static_cast<uint32_t>(i)}};
        REQUIRE(pair.Submit(100 + static_cast<uint64_t>(i), draft,
                            kSequence0 + static_cast<uint64_t>(i)) == PushResult::kOk);
      }
      // The first is answered, but the engine has not taken the answer. The second was taken.
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      pair.CompleteEmpty();
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      Next next(&pair);
      CHECK(pair.engine.rounds_in_flight() == 3);
      CHECK_FALSE(pair.engine.HasCompletion());
      for (int32_t i = 0; i < 3; ++i) {
        REQUIRE(next.daemon.Take(&pair.copy, 2));
        CHECK(pair.copy.round_id() == 100 + static_cast<uint64_t>(i));
        REQUIRE(pair.copy.records().size() == 1);
        const SequenceInput& record = pair.copy.records()[0];
        CHECK(record.sequence == kSequence0 + static_cast<uint64_t>(i));
        CHECK(record.draft.tokens[0] == 20 + i);
        CHECK(record.draft.draft_rows[0] == static_cast<uint32_t>(i));
        CHECK(pair.engine.NextRound().max_nodes == 1);
        const SequenceResult results[] = {{.sequence = record.sequence}};
        next.daemon.Complete(pair.copy, results, 3);
        REQUIRE(pair.engine.Poll(&pair.completion));
        CHECK(pair.completion.round_id == 100 + static_cast<uint64_t>(i));
        CHECK(pair.completion.results[0].sequence == record.sequence);
      }
      CHECK_FALSE(next.daemon.HasSubmission());
      CHECK_FALSE(pair.engine.in_flight());
    }
  }

  TEST_CASE("moved channel: rounds on streams that were aborted stay behind, later ones go along") {
    for (const uint64_t num_aborted : {0, 1, 2}) {
      Pair pair;
      for (uint64_t id = 1; id <= num_aborted; ++id) {
        REQUIRE(test::SubmitOnStream(&pair, id) == PushResult::kOk);
        test::ReleaseStream(pair, id);
        CHECK(pair.engine.awaits_stream_answer());
        REQUIRE(pair.engine.Poll(&pair.completion));
        REQUIRE(pair.completion.results[0].status == RoundStatus::kAborted);
      }
      CHECK_FALSE(pair.engine.awaits_stream_answer());
      REQUIRE(pair.Submit(100, TwoTokens()) == PushResult::kOk);
      CHECK_FALSE(pair.engine.awaits_stream_answer());
      Next next(&pair);
      CHECK(pair.engine.rounds_in_flight() == 1);
      REQUIRE(next.daemon.Take(&pair.copy, 2));
      CHECK(pair.copy.round_id() == 100);
      const SequenceResult results[] = {{.sequence = kSequence0}};
      next.daemon.Complete(pair.copy, results, 3);
      REQUIRE(pair.engine.Poll(&pair.completion));
      CHECK(pair.completion.round_id == 100);
      CHECK_FALSE(pair.engine.in_flight());
      CHECK_FALSE(next.daemon.HasSubmission());
    }
  }

  TEST_CASE("moved channel: a call goes along, and the last results stay readable") {
    Pair pair;
    REQUIRE(pair.Submit(1, TwoTokens()) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    const TokenId tokens[] = {10, 12};
    const SequenceResult results[] = {
        {.sequence = kSequence0, .num_kept = 2, .total_kept = 2, .tokens = tokens}};
    pair.daemon.Complete(pair.copy, results, 3);
    REQUIRE(pair.engine.Poll(&pair.completion));
    const CompletionView round = pair.completion;
    const ForcedInput forced = {.sequence = kSequence0 + 5, .num_ids_max = 3};
    REQUIRE(pair.engine.Call(std::span<const ForcedInput>(&forced, 1), 7) == PushResult::kOk);
    Next next(&pair);
    CHECK(pair.engine.call_in_flight());
    REQUIRE(next.daemon.Take(&pair.copy, 2));
    CHECK(pair.copy.kind() == SubmissionKind::kForcedTokens);
    CHECK(round.results[0].tokens[1] == 12);
  }
}

}  // namespace
}  // namespace specd
