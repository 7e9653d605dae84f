// The layout of docs/PROTOCOL.md, computed here by hand and compared with code and memory.
#include "ipc/segment/layout.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/ipc/segment/ipc_test_support.h"

namespace specd {
namespace {

template <class T>
T At(const Segment& segment, uint64_t offset) {
  T value;
  std::memcpy(&value, segment.at(offset), sizeof(value));
  return value;
}

TEST_SUITE("unit") {
  TEST_CASE("layout: offsets of a small session follow from the documented sums") {
    // depth 4, batch 4, draft 3, scores 2. Draft record: 16 + 3*4 + 4*4 + 3*4 + 3 = 59, rounded to
    // 64; 64 + 3*8 + 3*4 + 4*4 + 4*4 + 3*4 = 144, rounded to 192. Result record: 56 + 4*4 + 4*4
    // = 88; 88 + 4*2*12 = 184, rounded to 192.
    const SegmentLayout layout = ComputeLayout(test::kSmallLimits);
    CHECK(layout.draft_tokens_offset == 16);
    CHECK(layout.draft_target_rows_offset == 28);
    CHECK(layout.draft_draft_rows_offset == 44);
    CHECK(layout.draft_kinds_offset == 56);
    CHECK(layout.draft_masses_offset == 64);
    CHECK(layout.draft_weights_offset == 88);
    CHECK(layout.draft_mask_rows_offset == 100);
    CHECK(layout.draft_argmax_offset == 116);
    CHECK(layout.draft_parents_offset == 132);
    CHECK(layout.draft_record_bytes == 192);
    CHECK(layout.result_tokens_offset == 56);
    CHECK(layout.result_path_offset == 72);
    CHECK(layout.result_scores_offset == 88);
    CHECK(layout.result_record_bytes == 192);
    CHECK(layout.submission_ring_offset == 4096);
    CHECK(layout.completion_ring_offset == 4096 + 4 * 128);
    CHECK(layout.draft_payload_offset == 4096 + 8 * 128);
    CHECK(layout.draft_payload_bytes == 4 * 4 * 192);
    CHECK(layout.result_payload_offset == 5120 + 3072);
    CHECK(layout.sequence_table_offset == 8192 + 3072);
    // 11264 + 8 * 32 = 11520; then requests (8 + 4096 * 24 = 98312) and answers (4 * 1552 = 6208),
    // each from a multiple of 128 on, and all rounded to 4096.
    CHECK(layout.call_request_offset == 11520);
    CHECK(layout.call_answer_offset == 109952);
    // The words from the next page on (109952 + 6208 = 116160), 4 * 256 bytes of one page.
    CHECK(layout.round_words_offset == 118784);
    CHECK(layout.round_words_bytes == 4096);
    CHECK(layout.segment_bytes == 122880);
  }

  TEST_CASE("layout: every area of the extreme sessions is aligned, disjoint and inside") {
    for (const SessionLimits& limits :
         {SessionLimits{1, 1, 1, 0, 1}, SessionLimits{1 << 20, 4096, 65536, 64, 64},
          SessionLimits{50257, 3, 5, 7, 2, 129}}) {
      const SegmentLayout layout = ComputeLayout(limits);
      const uint64_t areas[][2] = {
          {0, 4096},
          {layout.submission_ring_offset, uint64_t{limits.ring_depth} * 128},
          {layout.completion_ring_offset, uint64_t{limits.ring_depth} * 128},
          {layout.draft_payload_offset, layout.draft_payload_bytes},
          {layout.result_payload_offset, layout.result_payload_bytes},
          {layout.sequence_table_offset, uint64_t{limits.max_sequences} * 32},
          {layout.call_request_offset, layout.call_request_bytes},
          {layout.call_answer_offset, layout.call_answer_bytes},
          {layout.round_words_offset, layout.round_words_bytes},
          {layout.segment_bytes, 0}};
      for (size_t i = 1; i < std::size(areas); ++i) {
        CHECK(areas[i][0] % 128 == 0);
        CHECK(areas[i - 1][0] + areas[i - 1][1] <= areas[i][0]);
      }
      CHECK(layout.segment_bytes <= uint64_t{1} << 30);
      // Whole pages with nothing else on them.
      CHECK(layout.round_words_offset % 4096 == 0);
      CHECK(layout.round_words_bytes % 4096 == 0);
      CHECK(layout.round_words_bytes >= uint64_t{limits.ring_depth} * 256);
      CHECK(layout.draft_masses_offset % 8 == 0);
      CHECK(layout.draft_record_bytes % 64 == 0);
    }
  }

  TEST_CASE("layout: the header's bytes stand where the document says") {
    const Segment segment = test::MakeSegment();
    CHECK(std::string(segment.at(0), 8) == "SPECDSEG");
    CHECK(At<uint32_t>(segment, 8) == 256);
    CHECK(At<uint32_t>(segment, 12) == 128);
    CHECK(At<uint64_t>(segment, 16) == 7);   // session_id
    CHECK(At<uint64_t>(segment, 24) == 11);  // daemon_epoch
    CHECK(At<uint64_t>(segment, 32) == 122880);
    CHECK(At<uint32_t>(segment, 40) == 32000);
    CHECK(At<uint32_t>(segment, 44) == 4);
    CHECK(At<uint32_t>(segment, 48) == 8);
    CHECK(At<uint32_t>(segment, 52) == 3);
    CHECK(At<uint32_t>(segment, 56) == 4);
    CHECK(At<uint32_t>(segment, 60) == 2);
    CHECK(At<uint64_t>(segment, 64) == 4096);
    CHECK(At<uint64_t>(segment, 72) == 4608);
    CHECK(At<uint64_t>(segment, 80) == 5120);
    CHECK(At<uint64_t>(segment, 88) == 8192);
    CHECK(At<uint64_t>(segment, 96) == 11264);
    CHECK(At<uint32_t>(segment, 104) == 192);
    CHECK(At<uint32_t>(segment, 108) == 192);
    CHECK(At<uint32_t>(segment, 112) == 11520);
    CHECK(At<uint32_t>(segment, 116) == 109952);
    CHECK(At<uint32_t>(segment, 120) == 118784);
    CHECK(At<uint32_t>(segment, 124) == 2);  // the protocol's version
    CHECK(At<uint32_t>(segment, 128) == 0);  // max_path: that of max_draft
  }

  TEST_CASE("layout: a submission's bytes stand where the document says") {
    Segment segment = test::MakeSegment();
    EngineChannel engine(&segment);
    const test::DraftBuffers draft{{0x0a0b0c0d, -1},
                                   {DraftKind::kSampled, DraftKind::kOneHot},
                                   {5, 6, 7},
                                   {8, 9},
                                   {0.5f, 0.25f},
                                   {2.0, 4.0},
                                   {},
                                   {3, -1, 4}};
    const SequenceInput drafts[] = {draft.View(0x100000002)};
    REQUIRE(engine.Submit(0x1122334455667788, drafts, 99) == PushResult::kOk);
    CHECK(At<uint64_t>(segment, 4096) == 1);  // position 0, plus one
    CHECK(At<uint64_t>(segment, 4096 + 8) == 0x1122334455667788);
    CHECK(At<uint64_t>(segment, 4096 + 16) == 99);
    CHECK(At<uint64_t>(segment, 4096 + 24) == 0);
    CHECK(At<uint32_t>(segment, 4096 + 32) == 192);
    CHECK(At<uint32_t>(segment, 4096 + 36) == 1);
    CHECK(At<uint32_t>(segment, 4096 + 40) == 0);
    CHECK(At<uint64_t>(segment, 5120) == 0x100000002);
    CHECK(At<uint32_t>(segment, 5120 + 8) == 2);
    CHECK(At<uint32_t>(segment, 5120 + 12) == 6);  // mask rows and a side channel
    CHECK(At<int32_t>(segment, 5120 + 16) == 0x0a0b0c0d);
    CHECK(At<int32_t>(segment, 5120 + 20) == -1);
    CHECK(At<uint32_t>(segment, 5120 + 28) == 5);
    CHECK(At<uint32_t>(segment, 5120 + 36) == 7);
    CHECK(At<uint32_t>(segment, 5120 + 44) == 8);
    CHECK(At<uint32_t>(segment, 5120 + 48) == 9);
    CHECK(At<uint8_t>(segment, 5120 + 56) == 1);
    CHECK(At<uint8_t>(segment, 5120 + 57) == 0);
    CHECK(At<double>(segment, 5120 + 72) == 4.0);
    CHECK(At<float>(segment, 5120 + 88) == 0.5f);
    CHECK(At<int32_t>(segment, 5120 + 104) == -1);
    CHECK(At<int32_t>(segment, 5120 + 108) == 4);
    // The second round goes to the second entry and the second share of the payload area.
    REQUIRE(engine.Submit(2, drafts, 100) == PushResult::kOk);
    CHECK(At<uint64_t>(segment, 4096 + 128) == 2);
    CHECK(At<uint64_t>(segment, 4096 + 128 + 24) == 4 * 192);
    CHECK(At<uint64_t>(segment, 5120 + 4 * 192) == 0x100000002);
  }

  TEST_CASE("layout: a completion's bytes stand where the document says") {
    Segment segment = test::MakeSegment();
    EngineChannel engine(&segment);
    DaemonChannel daemon(&segment);
    daemon.SetRowLimits({16, 16});
    const test::DraftBuffers draft = test::TwoTokens();
    const SequenceInput drafts[] = {draft.View(0x100000001)};
    REQUIRE(engine.Submit(21, drafts, 1000) == PushResult::kOk);
    SubmissionCopy copy(segment.limits());
    REQUIRE(daemon.Take(&copy, 2000));
    const TokenId tokens[] = {10, 77};
    const TokenScore scores[] = {{10, -0.5f, 1}, {77, -1.5f, 2}};
    const int32_t path[] = {5};
    const SequenceResult results[] = {{.sequence = 0x100000001,
                                       .refusal = Refusal::kTwice,
                                       .finish_reason = FinishReason::kStop,
                                       .num_accepted = 1,
                                       .num_kept = 2,
                                       .total_kept = 30,
                                       .stop_token = 77,
                                       .bad_row = 31,
                                       .tokens = tokens,
                                       .path = path,
                                       .scores_per_token = 1,
                                       .scores = scores,
                                       .cumulative_logprob = -4.25}};
    daemon.Complete(copy, results, 3000);
    CHECK(At<uint64_t>(segment, 384 + 8) == 1);  // submissions consumed
    CHECK(At<uint64_t>(segment, 4608) == 1);
    CHECK(At<uint64_t>(segment, 4608 + 8) == 21);
    CHECK(At<uint64_t>(segment, 4608 + 16) == 1000);
    CHECK(At<uint64_t>(segment, 4608 + 24) == 2000);
    CHECK(At<uint64_t>(segment, 4608 + 32) == 3000);
    CHECK(At<uint64_t>(segment, 4608 + 40) == 0);
    CHECK(At<uint32_t>(segment, 4608 + 48) == 192);
    CHECK(At<uint32_t>(segment, 4608 + 52) == 1);
    CHECK(At<uint32_t>(segment, 4608 + 56) == 0);
    CHECK(At<uint64_t>(segment, 8192) == 0x100000001);
    CHECK(At<uint32_t>(segment, 8192 + 8) == 0);
    CHECK(At<uint32_t>(segment, 8192 + 12) == 1);
    CHECK(At<uint32_t>(segment, 8192 + 16) == 1);
    CHECK(At<uint32_t>(segment, 8192 + 20) == 2);
    CHECK(At<uint32_t>(segment, 8192 + 24) == 30);
    CHECK(At<int32_t>(segment, 8192 + 28) == 77);
    CHECK(At<uint32_t>(segment, 8192 + 32) == 9);    // refusal
    CHECK(At<uint32_t>(segment, 8192 + 36) == 1);    // scores per token
    CHECK(At<double>(segment, 8192 + 40) == -4.25);  // the sum of logprobs
    CHECK(At<uint32_t>(segment, 8192 + 48) == 31);   // the bad row
    CHECK(At<uint32_t>(segment, 8192 + 52) == 0);
    CHECK(At<int32_t>(segment, 8192 + 56) == 10);
    CHECK(At<int32_t>(segment, 8192 + 60) == 77);
    CHECK(At<int32_t>(segment, 8192 + 72) == 5);  // the accepted node
    CHECK(At<int32_t>(segment, 8192 + 88 + 12) == 77);
    CHECK(At<float>(segment, 8192 + 88 + 16) == -1.5f);
    CHECK(At<int32_t>(segment, 8192 + 88 + 20) == 2);
  }

  TEST_CASE("layout: a sequence state packs into the documented bits and back") {
    // generation 3 at bit 35, stop (1) at bit 31, 5 kept tokens.
    CHECK(PackSequenceState({3, SPECD_FINISH_STOP, 5}) == (3ull << 35 | 1ull << 31 | 5));
    CHECK(PackSequenceState({3, SPECD_FINISH_STOP, 5, true}) ==
          (3ull << 35 | 1ull << 34 | 1ull << 31 | 5));
    const SequenceState extreme{(1u << 29) - 1, SPECD_FINISH_ERROR, 0x7fffffff, true};
    CHECK(UnpackSequenceState(PackSequenceState(extreme)) == extreme);
    CHECK(IsStateOf({3, 0, 0}, uint64_t{3} << 32 | 6));
    CHECK_FALSE(IsStateOf({3, 0, 0}, uint64_t{4} << 32 | 6));
    // Generations beyond 29 bits are never given out, and an empty slot has no sequence.
    CHECK_FALSE(IsStateOf({3, 0, 0}, (uint64_t{1} << 29 | 3) << 32 | 6));
    CHECK_FALSE(IsStateOf({0, 0, 0}, 6));
  }

  TEST_CASE("limits: each is refused on both sides of its range, by name") {
    const SessionLimits good{32000, 16, 16, 8, 4};
    REQUIRE(ValidateLimits(good).ok());
    struct Bad {
      uint32_t SessionLimits::*field;
      uint32_t value;
      const char* name;
    };
    const Bad bads[] = {{&SessionLimits::vocab_size, 0, "vocab_size"},
                        {&SessionLimits::vocab_size, (1 << 20) + 1, "vocab_size"},
                        {&SessionLimits::max_batch, 0, "max_batch"},
                        {&SessionLimits::max_batch, 4097, "max_batch"},
                        {&SessionLimits::max_sequences, 15, "max_sequences"},
                        {&SessionLimits::max_sequences, 65537, "max_sequences"},
                        {&SessionLimits::max_draft, 65, "max_draft"},
                        {&SessionLimits::max_draft, UINT32_MAX, "max_draft"},
                        {&SessionLimits::max_path, 9, "max_path"},
                        {&SessionLimits::ring_depth, 0, "ring_depth"},
                        {&SessionLimits::ring_depth, 3, "ring_depth"},
                        {&SessionLimits::ring_depth, 128, "ring_depth"},
                        {&SessionLimits::ring_depth, uint32_t{1} << 31, "ring_depth"},
                        {&SessionLimits::max_scores, 130, "max_scores_per_token"},
                        {&SessionLimits::max_scores, UINT32_MAX, "max_scores_per_token"}};
    for (const Bad& bad : bads) {
      SessionLimits limits = good;
      limits.*bad.field = bad.value;
      const absl::Status status = ValidateLimits(limits);
      CAPTURE(bad.name);
      CAPTURE(bad.value);
      CHECK(ErrorCodeOf(status) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(ErrorFieldOf(status) == bad.name);
      CHECK(status.message().find(std::to_string(bad.value)) != absl::string_view::npos);
    }
    for (uint32_t depth : {1, 2, 4, 64}) {
      CHECK(ValidateLimits({32000, 16, 16, 0, depth}).ok());
    }
  }

  TEST_CASE("limits: a session of more than 1 GiB is refused before anything is made") {
    // A result record of 65 tokens with 129 scores each takes 48 + 65*8 + 65*129*12 = 101,188
    // bytes, rounded to 101,248; a draft record 2,432. 64 rounds of 161 sequences are 1,068,318,720
    // bytes, of 162 too many.
    SessionLimits limits{32000, 161, 161, 64, 64, 129};
    CHECK(ValidateLimits(limits).ok());
    limits.max_batch = limits.max_sequences = 162;
    CHECK(ErrorFieldOf(ValidateLimits(limits)) == "max_scores_per_token");
    // Without scores the largest of everything fits.
    CHECK(ValidateLimits({1 << 20, 4096, 65536, 64, 64, 0}).ok());
    CHECK_FALSE(ValidateLimits({1 << 20, 4096, 65536, 64, 64, 129}).ok());
  }
}

}  // namespace
}  // namespace specd
