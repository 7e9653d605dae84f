// A hostile or broken peer that writes into the segment harms only itself.
#include <doctest/doctest.h>

#include <cstring>

#include "ipc/segment/daemon_channel.h"
#include "ipc/segment/engine_channel.h"
#include "tests/ipc/segment/ipc_test_support.h"

namespace specd {
namespace {

using test::DraftBuffers;
using test::kSequence0;
using test::Pair;
using test::TwoTokens;

template <class T>
void Poke(char* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

TEST_SUITE("unit") {
  TEST_CASE("hostile peer: an engine that never polls finds its own rounds waiting, no more") {
    // A hostile engine: it publishes submissions by hand, beyond what its ring of answers holds.
    Pair pair;
    RingProducer<SubmissionEntry> producer(
        {pair.segment.submission_entries(), &pair.segment.page()->daemon.submissions_consumed, 4});
    int taken = 0;
    for (int i = 0; i < 20; ++i) {
      if (producer.State() == RingState::kReady) {
        producer.Entry()->num_records = 0;
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

  TEST_CASE("hostile peer: rounds that are taken and not completed count as answers to come") {
    Pair pair;
    RingProducer<SubmissionEntry> producer(
        {pair.segment.submission_entries(), &pair.segment.page()->daemon.submissions_consumed, 4});
    for (int i = 0; i < 8; ++i) {
      REQUIRE(producer.State() == RingState::kReady);
      producer.Entry()->num_records = 0;
      producer.Publish();
      CHECK(pair.daemon.HasSubmission() == (i < 4));
      CHECK(pair.daemon.Take(&pair.copy, 2) == (i < 4));
    }
  }

  TEST_CASE("hostile peer: one bad record costs only its sequence") {
    const SegmentLayout layout = ComputeLayout(test::kSmallLimits);
    struct Bad {
      uint64_t offset;  // in the record
      uint32_t value;
      size_t width;
      Refusal fault;
    };
    const Bad bads[] = {
        {0, 8, 4, Refusal::kSequence},  // slot 8 of 8
        {0, UINT32_MAX, 4, Refusal::kSequence},
        {8, 4, 4, Refusal::kCount},  // max_draft is 3
        {8, UINT32_MAX, 4, Refusal::kCount},
        {12, 16, 4, Refusal::kDraftTokens},  // by slot, and none are bound
        {12, 64, 4, Refusal::kSlotParents},  // parents by slot, and none are bound
        {12, 128, 4, Refusal::kFlags},
        {12, 32, 4, Refusal::kParents},  // the record has no parents, so what lies there is none
        {12, uint32_t{1} << 31, 4, Refusal::kFlags},
        {layout.draft_mask_rows_offset + 4, 30, 4, Refusal::kMaskRow},  // rows 0..29
        {layout.draft_mask_rows_offset + 4, static_cast<uint32_t>(-2), 4, Refusal::kMaskRow},
        {layout.draft_mask_rows_offset, uint32_t{1} << 31, 4, Refusal::kMaskRow},
        {layout.draft_target_rows_offset, 100, 4, Refusal::kTargetRow},  // rows 0..99
        {layout.draft_target_rows_offset + 8, UINT32_MAX, 4, Refusal::kTargetRow},
        {layout.draft_draft_rows_offset, 50, 4, Refusal::kDraftRow},  // rows 0..49
        {layout.draft_kinds_offset, 3, 1, Refusal::kKind},
        {layout.draft_kinds_offset + 1, 255, 1, Refusal::kKind},
    };
    for (const Bad& bad : bads) {
      Pair pair;
      const DraftBuffers draft = test::TwoTokensWithAll();
      const SequenceInput drafts[] = {draft.View(kSequence0), draft.View(kSequence0 + 1),
                                      draft.View(kSequence0 + 2)};
      REQUIRE(pair.engine.Submit(1, drafts, 1) == PushResult::kOk);
      std::memcpy(pair.draft_record(1) + bad.offset, &bad.value, bad.width);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      CAPTURE(bad.offset);
      CAPTURE(bad.value);
      REQUIRE(pair.copy.records().size() == 3);
      CHECK(pair.copy.records()[0].refusal == Refusal::kNone);
      CHECK(pair.copy.records()[1].refusal == bad.fault);
      CHECK(pair.copy.records()[1].draft.num_nodes == 0);
      CHECK(pair.copy.records()[1].draft.tokens == nullptr);
      CHECK(pair.copy.records()[1].mask_rows == nullptr);
      CHECK(pair.copy.records()[2].refusal == Refusal::kNone);
      CHECK(pair.copy.records()[2].draft.num_nodes == 2);
    }
  }

  TEST_CASE("hostile peer: an argmax outside the vocabulary would be emitted as it is") {
    const SegmentLayout layout = ComputeLayout(test::kSmallLimits);
    for (const int32_t id : {-1, 32000, INT32_MAX, INT32_MIN}) {
      Pair pair;
      DraftBuffers draft = TwoTokens();
      draft.target_argmax = {1, 31999, 0};
      REQUIRE(pair.Submit(1, draft) == PushResult::kOk);
      REQUIRE(pair.Submit(2, draft) == PushResult::kOk);
      Poke<int32_t>(pair.draft_record(0) + layout.draft_argmax_offset + 8, id);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      CHECK(pair.copy.records()[0].refusal == Refusal::kArgmax);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      CHECK(pair.copy.records()[0].refusal == Refusal::kNone);
      CHECK(pair.copy.records()[0].draft.target_rows == nullptr);
    }
  }

  TEST_CASE("hostile peer: nothing of a discarded record is looked at") {
    const SegmentLayout layout = ComputeLayout(test::kSmallLimits);
    Pair pair;
    REQUIRE(pair.Submit(1, test::TwoTokensWithAll()) == PushResult::kOk);
    Poke<uint32_t>(pair.draft_record(0) + 12, kDraftDiscard | kDraftMaskRows | kDraftArgmax);
    std::memset(pair.draft_record(0) + 16, 0xff, layout.draft_record_bytes - 16);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    CHECK(pair.copy.records()[0].refusal == Refusal::kNone);
    CHECK(pair.copy.records()[0].discard);
    CHECK(pair.copy.records()[0].draft.num_nodes == 0);
    CHECK(pair.copy.records()[0].draft.target_rows == nullptr);
    CHECK(pair.copy.records()[0].mask_rows == nullptr);
  }

  TEST_CASE("hostile peer: what is not read is not judged") {
    const SegmentLayout layout = ComputeLayout(test::kSmallLimits);
    Pair pair;
    REQUIRE(pair.Submit(1, TwoTokens()) == PushResult::kOk);
    // The second token is one-hot, so its draft row does not matter; entries beyond the draft
    // neither; nor do ids outside the vocabulary, which are verified and rejected.
    Poke<uint32_t>(pair.draft_record(0) + layout.draft_draft_rows_offset + 4, UINT32_MAX);
    Poke<uint32_t>(pair.draft_record(0) + layout.draft_target_rows_offset + 12, UINT32_MAX);
    Poke<uint8_t>(pair.draft_record(0) + layout.draft_kinds_offset + 2, 200);
    Poke<int32_t>(pair.draft_record(0) + layout.draft_tokens_offset, -77);
    // Without its flag, an array is not read.
    std::memset(pair.draft_record(0) + layout.draft_masses_offset, 0xff,
                layout.draft_record_bytes - layout.draft_masses_offset);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    CHECK(pair.copy.records()[0].refusal == Refusal::kNone);
    CHECK(pair.copy.records()[0].draft.tokens[0] == -77);
    CHECK(pair.copy.records()[0].draft.draft_weights == nullptr);
    CHECK(pair.copy.records()[0].mask_rows == nullptr);
  }

  TEST_CASE("hostile peer: handles of one slot are passed on; the verifier tells them apart") {
    // Bug: a stale handle of a slot made the round's record of the slot's new sequence INVALID.
    Pair pair;
    const DraftBuffers draft = TwoTokens();
    const SequenceInput drafts[] = {draft.View(kSequence0),
                                    draft.View(kSequence0 + (uint64_t{1} << 32))};
    REQUIRE(pair.engine.Submit(1, drafts, 1) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    CHECK(pair.copy.records()[0].refusal == Refusal::kNone);
    CHECK(pair.copy.records()[1].refusal == Refusal::kNone);
  }

  TEST_CASE("hostile peer: before a tensor is bound every row is out of range") {
    Pair pair;
    pair.daemon.SetRowLimits({});
    REQUIRE(pair.Submit(1, TwoTokens()) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    CHECK(pair.copy.records()[0].refusal == Refusal::kTargetUnbound);
  }

  TEST_CASE("hostile peer: an entry that is not understood is answered as malformed") {
    const uint64_t area_bytes = ComputeLayout(test::kSmallLimits).draft_payload_bytes;
    struct Bad {
      uint64_t payload_offset;
      uint32_t payload_bytes;
      uint32_t num_records;
      uint32_t flags;
    };
    const Bad bads[] = {
        {area_bytes, 192, 1, 0},         // past the end
        {area_bytes - 192, 384, 2, 0},   // across the end
        {~uint64_t{191}, 192, 1, 0},     // offset + size wraps to 0
        {~uint64_t{0} - 31, 192, 1, 0},  // 2^64 - 32
        {32, 192, 1, 0},                 // not aligned
        {0, 192, 2, 0},                  // bytes and count disagree
        {0, 5 * 192, 5, 0},              // more than max_batch
        {0, 0, UINT32_MAX, 0},           // a count whose product wraps
        {0, 0xffffff80, 89478485, 0},    // the same, consistent in 32 bits: 2^64 / 192 cut
        {0, 192, 1, 2},                  // a flag of a later version
    };
    for (const Bad& bad : bads) {
      Pair pair;
      REQUIRE(pair.Submit(5, TwoTokens()) == PushResult::kOk);
      pair.entry(0)->payload_offset = bad.payload_offset;
      pair.entry(0)->payload_bytes = bad.payload_bytes;
      pair.entry(0)->num_records = bad.num_records;
      pair.entry(0)->flags = bad.flags;
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

  TEST_CASE("hostile peer: what changes in shared memory after the copy changes nothing") {
    Pair pair;
    REQUIRE(pair.Submit(5, TwoTokens()) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    std::memset(pair.draft_record(0), 0xff, pair.segment.layout().draft_payload_bytes);
    pair.entry(0)->round_id = 6;
    pair.entry(0)->num_records = 4000;
    CHECK(pair.copy.round_id() == 5);
    CHECK(pair.copy.records()[0].draft.num_nodes == 2);
    CHECK(pair.copy.records()[0].draft.target_rows[2] == 2);
    const TokenId tokens[] = {10};
    const SequenceResult result = {
        .sequence = kSequence0, .num_kept = 1, .total_kept = 1, .tokens = tokens};
    pair.daemon.Complete(pair.copy, {&result, 1}, 3);
    REQUIRE(pair.engine.Poll(&pair.completion));
    std::memset(pair.segment.at(pair.segment.layout().result_payload_offset), 0xff, 256);
    CHECK(pair.completion.round_id == 5);
    CHECK(pair.completion.results[0].num_kept == 1);
    CHECK(pair.completion.results[0].tokens[0] == 10);
  }

  TEST_CASE(
      "hostile peer: a jumped sequence or an impossible counter breaks the channel for good") {
    {
      Pair pair;
      REQUIRE(pair.Submit(5, TwoTokens()) == PushResult::kOk);
      pair.entry(0)->sequence.store(3);
      CHECK(pair.daemon.HasSubmission());
      CHECK_FALSE(pair.daemon.Take(&pair.copy, 2));
      CHECK(pair.daemon.fault() == ChannelFault::kSequence);
      pair.entry(0)->sequence.store(1);
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
      CHECK(pair.engine.HasCompletion());  // no engine waits for a broken daemon
    }
  }

  TEST_CASE("hostile peer: the engine survives a daemon that names results out of bounds") {
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
            pair->segment.completion_entries()->payload_offset = layout.result_payload_bytes;
          }) == ChannelFault::kPayload);
    CHECK(polled([](Pair* pair) {
            pair->segment.completion_entries()->payload_offset = ~uint64_t{0} - 31;
          }) == ChannelFault::kPayload);
    CHECK(polled([](Pair* pair) { pair->segment.completion_entries()->num_records = 5; }) ==
          ChannelFault::kPayload);
    CHECK(polled([](Pair* pair) {
            char* record = pair->segment.at(pair->segment.layout().result_payload_offset);
            Poke<uint32_t>(record + offsetof(ResultRecord, num_kept), 5);  // max_draft + 1 is 4
          }) == ChannelFault::kPayload);
    CHECK(polled([](Pair* pair) {
            char* record = pair->segment.at(pair->segment.layout().result_payload_offset);
            Poke<uint32_t>(record + offsetof(ResultRecord, scores_per_token),
                           3);  // max_scores is 2
          }) == ChannelFault::kPayload);
    CHECK(polled([](Pair* pair) { pair->segment.completion_entries()->sequence.store(9); }) ==
          ChannelFault::kSequence);
  }

  TEST_CASE("hostile peer: an answer to no question breaks the channel") {
    Pair pair;
    pair.segment.completion_entries()->sequence.store(1);
    CHECK_FALSE(pair.engine.Poll(&pair.completion));
    CHECK(pair.engine.fault() == ChannelFault::kSequence);
  }
}

}  // namespace
}  // namespace specd
