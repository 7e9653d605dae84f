// Rounds through a segment: what goes in comes out, and what a hostile peer writes costs only
// itself.
#include "ipc/round_channel.h"

#include <doctest/doctest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "ipc_test_support.h"

namespace specd {
namespace {

using test::DraftBuffers;
using test::TwoTokens;

constexpr uint64_t kSequence0 = uint64_t{1} << 32;

// Both ends of one session, in this process.
struct Pair {
  explicit Pair(const SessionLimits& limits = test::kSmallLimits)
      : segment(test::MakeSegment(limits)), engine(&segment), daemon(&segment), copy(limits) {
    daemon.SetRowLimits({100, 50});
  }

  PushResult Submit(uint64_t round_id, const DraftBuffers& draft, uint64_t sequence = kSequence0) {
    const EngineDraft drafts[] = {draft.View(sequence)};
    return engine.Submit(round_id, drafts, 1);
  }
  SubmissionSlot* slot(int i) { return segment.submission_slots() + i; }
  char* draft_record(int i) {
    return segment.at(segment.layout().draft_payload_offset +
                      static_cast<uint64_t>(i) * segment.layout().draft_record_bytes);
  }
  // Answers every record with kOk and no tokens.
  void CompleteEmpty() {
    std::vector<SequenceResult> results(copy.records().size());
    daemon.Complete(copy, results, 3);
  }

  Segment segment;
  EngineChannel engine;
  DaemonChannel daemon;
  SubmissionCopy copy;
  CompletionView completion;
};

template <class T>
void Poke(char* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

TEST_SUITE("unit") {
  TEST_CASE("round channel: a round arrives as it was sent, and so does its answer") {
    Pair pair;
    const DraftBuffers first = TwoTokens();
    const DraftBuffers second{{}, {}, {42}, {}};
    const EngineDraft drafts[] = {first.View(kSequence0), second.View(kSequence0 + 1)};
    REQUIRE(pair.engine.Submit(77, drafts, 1000) == PushResult::kOk);
    REQUIRE(pair.daemon.HasSubmission());
    REQUIRE(pair.daemon.Take(&pair.copy, 2000));
    CHECK(pair.copy.round_id() == 77);
    CHECK(pair.copy.submit_ns() == 1000);
    CHECK(pair.copy.taken_ns() == 2000);
    CHECK_FALSE(pair.copy.malformed());
    REQUIRE(pair.copy.records().size() == 2);
    const DraftRecordView& record = pair.copy.records()[0];
    CHECK(record.fault == RecordFault::kNone);
    CHECK(record.sequence == kSequence0);
    REQUIRE(record.chain.num_drafts == 2);
    CHECK(record.chain.tokens[0] == 10);
    CHECK(record.chain.tokens[1] == 11);
    CHECK(record.chain.kinds[0] == DraftKind::kSampled);
    CHECK(record.chain.kinds[1] == DraftKind::kOneHot);
    CHECK(record.chain.target_rows[2] == 2);
    CHECK(record.chain.draft_rows[0] == 0);
    CHECK(pair.copy.records()[1].chain.num_drafts == 0);
    CHECK(pair.copy.records()[1].chain.target_rows[0] == 42);
    CHECK_FALSE(pair.daemon.HasSubmission());
    CHECK_FALSE(pair.engine.Poll(&pair.completion));

    const TokenId tokens[] = {10, 12};
    const SequenceResult results[] = {
        {kSequence0, SPECD_STATUS_OK, SPECD_FINISH_LENGTH, 1, 2, 16, -1, tokens},
        {kSequence0 + 1, SPECD_STATUS_BAD_DISTRIBUTION, SPECD_FINISH_ERROR, 0, 0, 3, -1, nullptr}};
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
    CHECK(result.finish_reason == SPECD_FINISH_LENGTH);
    CHECK(result.num_accepted == 1);
    REQUIRE(result.num_kept == 2);
    CHECK(result.tokens[0] == 10);
    CHECK(result.tokens[1] == 12);
    CHECK(result.total_kept == 16);
    CHECK(result.stop_token == -1);
    CHECK(pair.completion.results[1].status == SPECD_STATUS_BAD_DISTRIBUTION);
    CHECK(pair.engine.rounds_in_flight() == 0);
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
    EngineDraft draft = TwoTokens().View(kSequence0);
    const DraftBuffers buffers = TwoTokens();
    draft = buffers.View(kSequence0);
    draft.chain.kinds = nullptr;
    draft.chain.draft_rows = nullptr;
    REQUIRE(pair.engine.Submit(2, {&draft, 1}, 1) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    REQUIRE(pair.copy.records()[0].fault == RecordFault::kNone);
    CHECK(pair.copy.records()[0].chain.kinds[0] == DraftKind::kOneHot);
    pair.CompleteEmpty();
    // A sampled token without rows is not judged by rows of an earlier round.
    draft.chain.kinds = buffers.kinds.data();
    REQUIRE(pair.engine.Submit(3, {&draft, 1}, 1) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    CHECK(pair.copy.records()[0].fault == RecordFault::kDraftRow);
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

  TEST_CASE("round channel: an engine that never polls finds its own rounds waiting, no more") {
    // A hostile engine: it publishes submissions by hand, beyond what its ring of answers holds.
    Pair pair;
    RingProducer<SubmissionSlot> producer(
        {pair.segment.submission_slots(), &pair.segment.page()->daemon.submissions_consumed, 4});
    int taken = 0;
    for (int i = 0; i < 20; ++i) {
      if (producer.State() == RingState::kReady) {
        producer.Slot()->num_records = 0;
        producer.Publish();
      }
      if (pair.daemon.Take(&pair.copy, 2)) {
        ++taken;
        pair.CompleteEmpty();
      }
    }
    CHECK(taken == 4);
    CHECK_FALSE(pair.daemon.HasSubmission());
    CHECK(pair.daemon.fault() == ChannelFault::kNone);
  }

  TEST_CASE("round channel: rounds that are taken and not completed count as answers to come") {
    Pair pair;
    RingProducer<SubmissionSlot> producer(
        {pair.segment.submission_slots(), &pair.segment.page()->daemon.submissions_consumed, 4});
    for (int i = 0; i < 8; ++i) {
      REQUIRE(producer.State() == RingState::kReady);
      producer.Slot()->num_records = 0;
      producer.Publish();
      CHECK(pair.daemon.HasSubmission() == (i < 4));
      CHECK(pair.daemon.Take(&pair.copy, 2) == (i < 4));
    }
  }

  TEST_CASE("round channel: one bad record costs only its sequence") {
    const SegmentLayout layout = ComputeLayout(test::kSmallLimits);
    struct Bad {
      uint64_t offset;  // in the record
      uint32_t value;
      size_t width;
      RecordFault fault;
    };
    const Bad bads[] = {
        {0, 8, 4, RecordFault::kSequence},  // slot 8 of 8
        {0, UINT32_MAX, 4, RecordFault::kSequence},
        {8, 4, 4, RecordFault::kCount},  // max_draft is 3
        {8, UINT32_MAX, 4, RecordFault::kCount},
        {12, 1, 4, RecordFault::kReserved},
        {layout.draft_target_rows_offset, 100, 4, RecordFault::kTargetRow},  // rows 0..99
        {layout.draft_target_rows_offset + 8, UINT32_MAX, 4, RecordFault::kTargetRow},
        {layout.draft_draft_rows_offset, 50, 4, RecordFault::kDraftRow},  // rows 0..49
        {layout.draft_kinds_offset, 2, 1, RecordFault::kKind},
        {layout.draft_kinds_offset + 1, 255, 1, RecordFault::kKind},
    };
    for (const Bad& bad : bads) {
      Pair pair;
      const DraftBuffers draft = TwoTokens();
      const EngineDraft drafts[] = {draft.View(kSequence0), draft.View(kSequence0 + 1),
                                    draft.View(kSequence0 + 2)};
      REQUIRE(pair.engine.Submit(1, drafts, 1) == PushResult::kOk);
      std::memcpy(pair.draft_record(1) + bad.offset, &bad.value, bad.width);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      CAPTURE(bad.offset);
      CAPTURE(bad.value);
      REQUIRE(pair.copy.records().size() == 3);
      CHECK(pair.copy.records()[0].fault == RecordFault::kNone);
      CHECK(pair.copy.records()[1].fault == bad.fault);
      CHECK(pair.copy.records()[1].chain.num_drafts == 0);
      CHECK(pair.copy.records()[1].chain.tokens == nullptr);
      CHECK(pair.copy.records()[2].fault == RecordFault::kNone);
      CHECK(pair.copy.records()[2].chain.num_drafts == 2);
    }
  }

  TEST_CASE("round channel: what is not read is not judged") {
    const SegmentLayout layout = ComputeLayout(test::kSmallLimits);
    Pair pair;
    REQUIRE(pair.Submit(1, TwoTokens()) == PushResult::kOk);
    // The second token is one-hot, so its draft row does not matter; entries beyond the draft
    // neither; nor do ids outside the vocabulary, which are verified and rejected.
    Poke<uint32_t>(pair.draft_record(0) + layout.draft_draft_rows_offset + 4, UINT32_MAX);
    Poke<uint32_t>(pair.draft_record(0) + layout.draft_target_rows_offset + 12, UINT32_MAX);
    Poke<uint8_t>(pair.draft_record(0) + layout.draft_kinds_offset + 2, 200);
    Poke<int32_t>(pair.draft_record(0) + layout.draft_tokens_offset, -77);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    CHECK(pair.copy.records()[0].fault == RecordFault::kNone);
    CHECK(pair.copy.records()[0].chain.tokens[0] == -77);
  }

  TEST_CASE("round channel: a sequence stands in a round once, and again in the next") {
    Pair pair;
    const DraftBuffers draft = TwoTokens();
    const EngineDraft drafts[] = {draft.View(kSequence0), draft.View(kSequence0)};
    for (int round = 0; round < 2; ++round) {
      REQUIRE(pair.engine.Submit(1, drafts, 1) == PushResult::kOk);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      CHECK(pair.copy.records()[0].fault == RecordFault::kNone);
      CHECK(pair.copy.records()[1].fault == RecordFault::kRepeated);
      pair.CompleteEmpty();
    }
  }

  TEST_CASE("round channel: before a tensor is bound every row is out of range") {
    Pair pair;
    pair.daemon.SetRowLimits({});
    REQUIRE(pair.Submit(1, TwoTokens()) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    CHECK(pair.copy.records()[0].fault == RecordFault::kTargetRow);
  }

  TEST_CASE("round channel: a slot that is not understood is answered as malformed") {
    const uint64_t area_bytes = ComputeLayout(test::kSmallLimits).draft_payload_bytes;
    struct Bad {
      uint64_t payload_offset;
      uint32_t payload_bytes;
      uint32_t num_records;
      uint32_t flags;
    };
    const Bad bads[] = {
        {area_bytes, 64, 1, 0},         // past the end
        {area_bytes - 64, 128, 2, 0},   // across the end
        {~uint64_t{63}, 64, 1, 0},      // offset + size wraps to 0
        {~uint64_t{0} - 31, 64, 1, 0},  // 2^64 - 32
        {32, 64, 1, 0},                 // not aligned
        {0, 64, 2, 0},                  // bytes and count disagree
        {0, 5 * 64, 5, 0},              // more than max_batch
        {0, 0, UINT32_MAX, 0},          // a count whose product wraps
        {0, 0xffffffc0, 67108863, 0},   // the same, consistent in 32 bits
        {0, 64, 1, 1},                  // a flag of a later version
    };
    for (const Bad& bad : bads) {
      Pair pair;
      REQUIRE(pair.Submit(5, TwoTokens()) == PushResult::kOk);
      pair.slot(0)->payload_offset = bad.payload_offset;
      pair.slot(0)->payload_bytes = bad.payload_bytes;
      pair.slot(0)->num_records = bad.num_records;
      pair.slot(0)->flags = bad.flags;
      REQUIRE(pair.Submit(6, TwoTokens()) == PushResult::kOk);
      CAPTURE(bad.payload_offset);
      CAPTURE(bad.num_records);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      CHECK(pair.copy.malformed());
      CHECK(pair.copy.round_id() == 5);
      CHECK(pair.copy.records().empty());
      pair.CompleteEmpty();
      REQUIRE(pair.engine.Poll(&pair.completion));
      CHECK(pair.completion.malformed);
      CHECK(pair.completion.round_id == 5);
      CHECK(pair.completion.results.empty());
      // The next round is undisturbed.
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      CHECK_FALSE(pair.copy.malformed());
      CHECK(pair.copy.records().size() == 1);
    }
  }

  TEST_CASE("round channel: what changes in shared memory after the copy changes nothing") {
    Pair pair;
    REQUIRE(pair.Submit(5, TwoTokens()) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    std::memset(pair.draft_record(0), 0xff, pair.segment.layout().draft_payload_bytes);
    pair.slot(0)->round_id = 6;
    pair.slot(0)->num_records = 4000;
    CHECK(pair.copy.round_id() == 5);
    CHECK(pair.copy.records()[0].chain.num_drafts == 2);
    CHECK(pair.copy.records()[0].chain.target_rows[2] == 2);
    const TokenId tokens[] = {10};
    const SequenceResult result{kSequence0, 0, 0, 0, 1, 1, -1, tokens};
    pair.daemon.Complete(pair.copy, {&result, 1}, 3);
    REQUIRE(pair.engine.Poll(&pair.completion));
    std::memset(pair.segment.at(pair.segment.layout().result_payload_offset), 0xff, 256);
    CHECK(pair.completion.round_id == 5);
    CHECK(pair.completion.results[0].num_kept == 1);
    CHECK(pair.completion.results[0].tokens[0] == 10);
  }

  TEST_CASE(
      "round channel: a jumped sequence or an impossible counter breaks the channel for good") {
    {
      Pair pair;
      REQUIRE(pair.Submit(5, TwoTokens()) == PushResult::kOk);
      pair.slot(0)->sequence.store(3);
      CHECK(pair.daemon.HasSubmission());
      CHECK_FALSE(pair.daemon.Take(&pair.copy, 2));
      CHECK(pair.daemon.fault() == ChannelFault::kSequence);
      pair.slot(0)->sequence.store(1);
      CHECK_FALSE(pair.daemon.Take(&pair.copy, 2));
      CHECK_FALSE(pair.daemon.HasSubmission());
    }
    {
      Pair pair;
      // Until the ring has been filled once there is room without asking the engine's word.
      for (int i = 0; i < 4; ++i) {
        REQUIRE(pair.Submit(5, TwoTokens()) == PushResult::kOk);
        REQUIRE(pair.daemon.Take(&pair.copy, 2));
        pair.CompleteEmpty();
        REQUIRE(pair.engine.Poll(&pair.completion));
      }
      pair.segment.page()->engine.completions_consumed.store(1000);
      REQUIRE(pair.Submit(5, TwoTokens()) == PushResult::kOk);
      CHECK_FALSE(pair.daemon.Take(&pair.copy, 2));
      CHECK(pair.daemon.fault() == ChannelFault::kConsumed);
    }
    {
      Pair pair;
      for (int i = 0; i < 4; ++i) {
        REQUIRE(pair.Submit(5, TwoTokens()) == PushResult::kOk);
        REQUIRE(pair.daemon.Take(&pair.copy, 2));
        pair.CompleteEmpty();
        REQUIRE(pair.engine.Poll(&pair.completion));
      }
      pair.segment.page()->daemon.submissions_consumed.store(1000);
      CHECK(pair.Submit(5, TwoTokens()) == PushResult::kBroken);
      CHECK(pair.engine.fault() == ChannelFault::kConsumed);
      CHECK(pair.engine.HasCompletion());  // nobody waits for a broken daemon
    }
  }

  TEST_CASE("round channel: the engine survives a daemon that names results out of bounds") {
    const SegmentLayout layout = ComputeLayout(test::kSmallLimits);
    const auto polled = [](auto change) {
      Pair pair;
      REQUIRE(pair.Submit(5, TwoTokens()) == PushResult::kOk);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      pair.CompleteEmpty();
      change(&pair);
      CHECK_FALSE(pair.engine.Poll(&pair.completion));
      return pair.engine.fault();
    };
    CHECK(polled([&](Pair* pair) {
            pair->segment.completion_slots()->payload_offset = layout.result_payload_bytes;
          }) == ChannelFault::kPayload);
    CHECK(polled([](Pair* pair) {
            pair->segment.completion_slots()->payload_offset = ~uint64_t{0} - 31;
          }) == ChannelFault::kPayload);
    CHECK(polled([](Pair* pair) { pair->segment.completion_slots()->num_records = 5; }) ==
          ChannelFault::kPayload);
    CHECK(polled([](Pair* pair) {
            char* record = pair->segment.at(pair->segment.layout().result_payload_offset);
            Poke<uint32_t>(record + offsetof(ResultRecord, num_kept), 5);  // max_draft + 1 is 4
          }) == ChannelFault::kPayload);
    CHECK(polled([](Pair* pair) { pair->segment.completion_slots()->sequence.store(9); }) ==
          ChannelFault::kSequence);
  }

  TEST_CASE("round channel: an answer to no question breaks the channel") {
    Pair pair;
    pair.segment.completion_slots()->sequence.store(1);
    CHECK_FALSE(pair.engine.Poll(&pair.completion));
    CHECK(pair.engine.fault() == ChannelFault::kSequence);
  }

  TEST_CASE("round channel: sequence states and process states cross at once") {
    Pair pair;
    CHECK(pair.engine.ReadState(7) == SequenceState{});
    pair.daemon.WriteState(7, {3, SPECD_FINISH_STOP, 12});
    CHECK(pair.engine.ReadState(7) == SequenceState{3, SPECD_FINISH_STOP, 12});
    CHECK(pair.engine.ReadState(6) == SequenceState{});
    CHECK(pair.engine.daemon_state() == DaemonState::kStarting);
    pair.daemon.SetState(DaemonState::kDraining);
    CHECK(pair.engine.daemon_state() == DaemonState::kDraining);
    pair.engine.SetState(EngineState::kClosing);
    CHECK(pair.daemon.engine_state() == EngineState::kClosing);
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
          const SequenceResult result{kSequence0, 0, 0, 0, 1, 1, -1, &token};
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
