// Calls through the rings: their bytes, what either side survives, and what waits for what.
#include "ipc/segment/calls.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/ipc/segment/ipc_test_support.h"

namespace specd {
namespace {

using test::kSequence0;
using test::Pair;

const TokenId kPrefix[] = {10, 11};
const uint32_t kRows[] = {5, 6, 7};
const TokenId kIds[] = {100, 200, 300};
const TokenId kChosen[] = {400};

DraftInput OneChild() {
  return {.sequence = kSequence0,
          .row = 4,
          .mask_row = -1,
          .prefix = kPrefix,
          .num_prefix = 2,
          .sampling = DraftSampling::kWithoutReplacement,
          .num_children = 3,
          .first_node = 9};
}
ScoreInput TwoIds() {
  return {.rows = kRows,
          .ids = kIds,
          .num_ids = 2,
          .request = {.enabled = true,
                      .mode = ScoreMode::kRawLogit,
                      .num_top = 1,
                      .chosen = kChosen,
                      .num_chosen = 1}};
}

template <class T>
T At(const char* bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof(value));
  return value;
}

char* Requests(Pair* pair) { return pair->segment.at(pair->segment.layout().call_request_offset); }
char* Answers(Pair* pair) { return pair->segment.at(pair->segment.layout().call_answer_offset); }

// Submits one request of kSampleDraft and takes it.
void AskForChildren(Pair* pair) {
  const DraftInput call = OneChild();
  REQUIRE(pair->engine.Call({&call, 1}, 1) == PushResult::kOk);
  REQUIRE(pair->daemon.Take(&pair->copy, 2));
  REQUIRE(pair->copy.kind() == SubmissionKind::kSampleDraft);
}

TEST_SUITE("unit") {
  TEST_CASE("calls: the offsets follow from the documented sums") {
    // max_draft 3: score record 16 + 2*4*4 + 64*4 = 304, rounded to 320; children need 32 + 3*4.
    const SegmentLayout layout = ComputeLayout(test::kSmallLimits);
    CHECK(layout.call_rows_offset == 16);
    CHECK(layout.call_ids_offset == 32);
    CHECK(layout.call_chosen_offset == 48);
    CHECK(layout.call_record_bytes == 320);
    CHECK(layout.call_request_bytes == 8 + 4096 * 24);  // coins need more than 4 * 320
    CHECK(layout.call_answer_bytes == 4 * 1552);
    CHECK(ComputeLayout({8, 1, 1, 64, 1, 0}).call_record_bytes == 832);   // 16 + 2*65*4 + 256 = 792
    CHECK(ComputeLayout({8, 1, 1, 64, 1, 0}).call_answer_bytes == 2128);  // a refusal
    CHECK(ComputeLayout({8, 4096, 4096, 0, 1, 0}).call_request_bytes == 4096 * 320);
  }

  TEST_CASE("calls: a request's bytes stand where the document says") {
    Pair pair;
    const DraftInput children[] = {{}, OneChild()};
    REQUIRE(pair.engine.Call(children, 77) == PushResult::kOk);
    CHECK(pair.entry(0)->kind == 1);
    CHECK(pair.entry(0)->payload_offset == 0);
    CHECK(pair.entry(0)->payload_bytes == 640);
    CHECK(pair.entry(0)->num_records == 2);
    CHECK(pair.entry(0)->submit_ns == 77);
    const char* record = Requests(&pair) + 320;
    CHECK(At<uint64_t>(record, 0) == kSequence0);
    CHECK(At<uint32_t>(record, 8) == 4);
    CHECK(At<int32_t>(record, 12) == -1);
    CHECK(At<uint32_t>(record, 16) == 2);
    CHECK(At<uint32_t>(record, 20) == 1);
    CHECK(At<uint32_t>(record, 24) == 3);
    CHECK(At<uint32_t>(record, 28) == 9);
    CHECK(At<int32_t>(record, 36) == 11);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    REQUIRE(pair.copy.draft_calls().size() == 2);
    CHECK(pair.copy.records().empty());
    CHECK(pair.copy.score_calls().empty());
    const DraftInput& taken = pair.copy.draft_calls()[1];
    CHECK(taken.sequence == kSequence0);
    CHECK(taken.prefix[1] == 11);
    CHECK(taken.first_node == 9);

    Pair other;
    const ScoreInput score = TwoIds();
    REQUIRE(other.engine.Call({&score, 1}, 1) == PushResult::kOk);
    CHECK(other.entry(0)->kind == 2);
    const char* scored = Requests(&other);
    CHECK(At<uint32_t>(scored, 0) == 2);
    CHECK(At<uint32_t>(scored, 4) == 2);
    CHECK(At<uint32_t>(scored, 8) == 1);
    CHECK(At<uint32_t>(scored, 12) == 1);
    CHECK(At<uint32_t>(scored, 16 + 4) == 6);
    CHECK(At<int32_t>(scored, 32 + 4) == 200);
    CHECK(At<int32_t>(scored, 48) == 400);

    Pair third;
    const CoinRecord coin{3, 2, 1, SPECD_COIN_ACCEPT, 99};
    REQUIRE(third.engine.Call(CoinsCall{kSequence0, {&coin, 1}}, 1) == PushResult::kOk);
    CHECK(third.entry(0)->kind == 3);
    CHECK(third.entry(0)->payload_bytes == 32);
    CHECK(At<uint64_t>(Requests(&third), 0) == kSequence0);
    CHECK(At<uint32_t>(Requests(&third), 8) == 3);
    CHECK(At<uint32_t>(Requests(&third), 20) == SPECD_COIN_ACCEPT);
    CHECK(At<uint64_t>(Requests(&third), 24) == 99);
    REQUIRE(third.daemon.Take(&third.copy, 2));
    CHECK(third.copy.coins_call().sequence == kSequence0);
    CHECK(third.copy.coins_call().coins[0].value == 99);
  }

  TEST_CASE("calls: children, scores and refusals come back") {
    Pair pair;
    AskForChildren(&pair);
    const DraftSample samples[] = {{5, 2, 0.5f, DraftKind::kOneHot, 4.0},
                                   {6, 1, 0.25f, DraftKind::kSampledRest, 4.0}};
    const DraftResult answer = {.sequence = kSequence0, .reason = {}, .children = samples};
    pair.daemon.Complete(pair.copy, std::span<const DraftResult>(&answer, 1), 3);
    CHECK(At<uint32_t>(Answers(&pair), 12) == 2);
    CHECK(At<int32_t>(Answers(&pair), 16 + 24) == 6);
    // No other byte of the daemon's goes along.
    CHECK(At<uint32_t>(Answers(&pair), 16 + 12) == SPECD_ONE_HOT);
    CHECK(At<uint32_t>(Answers(&pair), 16 + 24 + 12) == SPECD_SAMPLED_REST);
    CHECK(At<double>(Answers(&pair), 16 + 16) == 4.0);
    REQUIRE(pair.engine.Poll(&pair.completion));
    std::memset(Answers(&pair), 0xff, 100);  // what was read is private
    CHECK(pair.completion.kind == SubmissionKind::kSampleDraft);
    REQUIRE(pair.completion.children.size() == 1);
    CHECK(pair.completion.children[0].sequence == kSequence0);
    REQUIRE(pair.completion.children[0].children.size() == 2);
    CHECK(pair.completion.children[0].children[1].weight == 0.25f);
    CHECK(pair.completion.children[0].children[1].kind == DraftKind::kSampledRest);
    CHECK(pair.completion.children[0].children[1].mass == 4.0);

    const ScoreInput score = TwoIds();
    REQUIRE(pair.engine.Call({&score, 1}, 1) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    const TokenScore scores[] = {{100, -1.5f, 2}, {7, -1.0f, 1}, {200, -3.0f, 4}, {8, -0.5f, 1}};
    const SequenceResult result = {
        .num_kept = 2, .tokens = kIds, .scores_per_token = 2, .scores = scores};
    pair.daemon.Complete(pair.copy, std::span<const SequenceResult>(&result, 1), 3);
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.children.empty());
    REQUIRE(pair.completion.results.size() == 1);
    CHECK(pair.completion.results[0].scores[2].id == 200);

    REQUIRE(pair.engine.Call(CoinsCall{kSequence0, {}}, 1) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    pair.daemon.Refuse(pair.copy,
                       MakeError(SPECD_ERROR_NOT_FOUND, "sequence", std::string(3000, 'x')), 3);
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(ErrorCodeOf(pair.completion.refusal) == SPECD_ERROR_NOT_FOUND);
    CHECK(ErrorFieldOf(pair.completion.refusal) == "sequence");
    CHECK(pair.completion.refusal.message().size() == 2048);
    CHECK(pair.completion.results.empty());
    CHECK_FALSE(pair.engine.in_flight());
  }

  TEST_CASE("calls: one at a time, and none beside a round") {
    Pair pair;
    const DraftInput call = OneChild();
    REQUIRE(pair.Submit(1, test::TwoTokens()) == PushResult::kOk);
    CHECK(pair.engine.Call({&call, 1}, 1) == PushResult::kFull);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    pair.CompleteEmpty();
    REQUIRE(pair.engine.Poll(&pair.completion));
    REQUIRE(pair.engine.Call({&call, 1}, 1) == PushResult::kOk);
    CHECK(pair.engine.call_in_flight());
    CHECK(pair.engine.rounds_in_flight() == 0);
    CHECK(pair.engine.Call({&call, 1}, 1) == PushResult::kFull);
    CHECK(pair.Submit(2, test::TwoTokens()) == PushResult::kFull);
  }

  TEST_CASE("calls: a list that is longer than its room stays at home; its count travels") {
    Pair pair;
    std::memset(Requests(&pair), 0x55, 700);
    DraftInput call = OneChild();
    call.num_prefix = INT32_MAX;
    ScoreInput score = TwoIds();
    score.num_ids = 5;
    score.request.num_chosen = 65;
    REQUIRE(pair.engine.Call({&call, 1}, 1) == PushResult::kOk);
    CHECK(At<uint32_t>(Requests(&pair), 16) == INT32_MAX);
    CHECK(At<uint32_t>(Requests(&pair), 32) == 0x55555555);
    Pair other;
    std::memset(Requests(&other), 0x55, 700);
    REQUIRE(other.engine.Call({&score, 1}, 1) == PushResult::kOk);
    CHECK(At<uint32_t>(Requests(&other), 0) == 5);
    for (uint64_t offset = 16; offset < 320; offset += 4) {
      CHECK(At<uint32_t>(Requests(&other), offset) == 0x55555555);
    }
  }

  TEST_CASE(
      "calls: a question for forced ids has the bytes of a children record, and ids for answer") {
    Pair pair;
    std::memset(Requests(&pair), 0x55, 700);
    const ForcedInput call = {
        .sequence = kSequence0, .prefix = kPrefix, .num_prefix = 2, .num_ids_max = 3};
    REQUIRE(pair.engine.Call(std::span<const ForcedInput>(&call, 1), 1) == PushResult::kOk);
    CHECK(pair.entry(0)->kind == 4);
    CHECK(pair.entry(0)->payload_bytes == 320);
    CHECK(At<uint64_t>(Requests(&pair), 0) == kSequence0);
    CHECK(At<uint64_t>(Requests(&pair), 8) == 0);
    CHECK(At<uint32_t>(Requests(&pair), 16) == 2);
    CHECK(At<uint32_t>(Requests(&pair), 20) == 0);
    CHECK(At<uint32_t>(Requests(&pair), 24) == 3);
    CHECK(At<uint32_t>(Requests(&pair), 28) == 0);
    CHECK(At<int32_t>(Requests(&pair), 32) == 10);
    CHECK(At<int32_t>(Requests(&pair), 36) == 11);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    REQUIRE(pair.copy.forced_calls().size() == 1);
    CHECK(pair.copy.draft_calls().empty());
    CHECK(pair.copy.forced_calls()[0].sequence == kSequence0);
    CHECK(pair.copy.forced_calls()[0].num_prefix == 2);
    CHECK(pair.copy.forced_calls()[0].prefix[1] == 11);
    CHECK(pair.copy.forced_calls()[0].num_ids_max == 3);
    const TokenId ids[] = {5, 6};
    SequenceResult answer;
    answer.sequence = kSequence0;
    answer.num_kept = 2;
    answer.tokens = ids;
    pair.daemon.Complete(pair.copy, std::span<const SequenceResult>(&answer, 1), 3);
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.kind == SubmissionKind::kForcedTokens);
    REQUIRE(pair.completion.results.size() == 1);
    CHECK(pair.completion.results[0].num_kept == 2);
    CHECK(pair.completion.results[0].tokens[1] == 6);
  }

  TEST_CASE("calls: what changes in shared memory after the copy changes nothing") {
    Pair pair;
    const ScoreInput score = TwoIds();
    REQUIRE(pair.engine.Call({&score, 1}, 1) == PushResult::kOk);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    std::memset(Requests(&pair), 0xff, 1000);
    pair.entry(0)->kind = 1;
    REQUIRE(pair.copy.score_calls().size() == 1);
    CHECK(pair.copy.score_calls()[0].num_ids == 2);
    CHECK(pair.copy.score_calls()[0].rows[1] == 6);
    CHECK(pair.copy.score_calls()[0].request.chosen[0] == 400);
  }

  TEST_CASE("calls: an entry that is not understood is answered as malformed, under its own kind") {
    struct Bad {
      uint32_t kind;
      uint64_t payload_offset;
      uint32_t payload_bytes;
      uint32_t num_records;
    };
    const Bad bads[] = {
        {5, 0, 320, 1},                   // no such kind
        {UINT32_MAX, 0, 320, 1},          //
        {1, 64, 320, 1},                  // there is one place for a request
        {1, ~uint64_t{0} - 63, 320, 1},   //
        {1, 0, 320, 2},                   // bytes and count disagree
        {1, 0, 5 * 320, 5},               // more than max_batch
        {2, 0, 0, UINT32_MAX},            //
        {4, 0, 320, 2},                   //
        {3, 0, 8 + 4097 * 24, 4097},      // more coins than there may be
        {3, 0, 8 + 8 * 24, 0x80000008u},  // the product wraps in 32 bits
        {3, 0, 0, 0},                     // no sequence
    };
    for (const Bad& bad : bads) {
      Pair pair;
      REQUIRE(pair.Submit(5, test::TwoTokens()) == PushResult::kOk);
      pair.entry(0)->kind = bad.kind;
      pair.entry(0)->payload_offset = bad.payload_offset;
      pair.entry(0)->payload_bytes = bad.payload_bytes;
      pair.entry(0)->num_records = bad.num_records;
      CAPTURE(bad.kind);
      CAPTURE(bad.num_records);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      CHECK(pair.copy.malformed());
      CHECK(pair.copy.records().empty());
      CHECK(pair.copy.draft_calls().empty());
      CHECK(pair.copy.forced_calls().empty());
      pair.CompleteEmpty();
      CHECK(pair.segment.completion_entries()->flags == kCompletionMalformed);
      CHECK(pair.segment.completion_entries()->kind == bad.kind);
    }
  }

  TEST_CASE("calls: the engine survives a daemon that answers what was not asked, or too much") {
    const auto polled = [](auto change) {
      Pair pair;
      AskForChildren(&pair);
      const DraftResult answer = {.sequence = kSequence0, .reason = {}, .children = {}};
      pair.daemon.Complete(pair.copy, std::span<const DraftResult>(&answer, 1), 3);
      change(&pair, pair.segment.completion_entries());
      CHECK_FALSE(pair.engine.Poll(&pair.completion));
      return pair.engine.fault();
    };
    CHECK(polled([](Pair*, CompletionEntry* entry) { entry->kind = 0; }) == ChannelFault::kPayload);
    CHECK(polled([](Pair*, CompletionEntry* entry) { entry->kind = 2; }) == ChannelFault::kPayload);
    CHECK(polled([](Pair*, CompletionEntry* entry) { entry->num_records = 5; }) ==
          ChannelFault::kPayload);
    CHECK(polled([](Pair* pair, CompletionEntry*) {
            const uint32_t children = 65;
            std::memcpy(Answers(pair) + 12, &children, sizeof(children));
          }) == ChannelFault::kPayload);

    Pair round;
    REQUIRE(round.Submit(1, test::TwoTokens()) == PushResult::kOk);
    REQUIRE(round.daemon.Take(&round.copy, 2));
    round.CompleteEmpty();
    round.segment.completion_entries()->flags = kCompletionRefused;  // no round is refused
    CHECK_FALSE(round.engine.Poll(&round.completion));
    CHECK(round.engine.fault() == ChannelFault::kPayload);
  }

  TEST_CASE("calls: a refusal that says nothing readable is an error all the same") {
    const auto refusal = [](uint64_t offset, uint32_t value) {
      Pair pair;
      AskForChildren(&pair);
      pair.daemon.Refuse(pair.copy, MakeError(SPECD_ERROR_NOT_FOUND, "f", "text"), 3);
      std::memcpy(Answers(&pair) + offset, &value, sizeof(value));
      REQUIRE(pair.engine.Poll(&pair.completion));
      return ErrorCodeOf(pair.completion.refusal);
    };
    CHECK(refusal(12, 0) == SPECD_ERROR_NOT_FOUND);
    CHECK(refusal(0, 0) == SPECD_ERROR_INTERNAL);  // OK is no refusal
    CHECK(refusal(0, 1) == SPECD_ERROR_INTERNAL);
    CHECK(refusal(4, 65) == SPECD_ERROR_INTERNAL);
    CHECK(refusal(8, 2049) == SPECD_ERROR_INTERNAL);
  }
}

}  // namespace
}  // namespace specd
