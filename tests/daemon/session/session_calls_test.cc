// A hostile engine writes into the request area. Every call is answered or refused, no number is
// used before it was checked, and no sequence changes.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "ipc/segment/spsc_ring.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

// A session over the real backend, and the engine's end of the rings by hand.
struct Calls : SessionFixture {
  static SessionLimits Limits() {
    SessionLimits limits = kLimits;
    limits.max_sequences = 300;
    limits.ring_depth = 1;
    return limits;
  }

  Calls() : SessionFixture(false) {
    SessionOptions options = session->options();
    options.limits = Limits();
    Attach(options, *MakeBackend("cpu"));
    TensorSpec spec;
    spec.num_rows = 4;
    REQUIRE(session->Bind(TensorRole::kDraftRows, 1, spec).ok());
    REQUIRE(session->Bind(TensorRole::kGrammarMask, 1, spec).ok());
    submissions = std::make_unique<RingProducer<SubmissionEntry>>(RingView<SubmissionEntry>{
        segment->submission_entries(), &segment->page()->daemon.submissions_consumed, 1});
    completions = std::make_unique<RingConsumer<CompletionEntry>>(RingView<CompletionEntry>{
        segment->completion_entries(), &segment->page()->engine.completions_consumed, 1});
  }

  char* request() { return segment->at(segment->layout().call_request_offset); }
  const char* answer() { return segment->at(segment->layout().call_answer_offset); }

  // The flags of the completion.
  uint32_t Submit(uint32_t kind, uint32_t num_records, uint32_t payload_bytes) {
    REQUIRE(submissions->State() == RingState::kReady);
    SubmissionEntry* entry = submissions->Entry();
    entry->payload_offset = 0;
    entry->payload_bytes = payload_bytes;
    entry->num_records = num_records;
    entry->flags = 0;
    entry->kind = kind;
    submissions->Publish();
    REQUIRE(StepSession(session));
    REQUIRE(completions->State() == RingState::kReady);
    const CompletionEntry* done = completions->Entry();
    CHECK(done->kind == kind);
    const uint32_t flags = done->flags;
    completions->Release();
    return flags;
  }

  uint32_t SetCoins(SequenceHandle sequence, const std::vector<CoinRecord>& coins) {
    const uint32_t bytes = WriteCalls(segment->layout(), CoinsCall{sequence, coins}, request());
    return Submit(static_cast<uint32_t>(SubmissionKind::kSetCoins),
                  static_cast<uint32_t>(coins.size()), bytes);
  }

  std::unique_ptr<RingProducer<SubmissionEntry>> submissions;
  std::unique_ptr<RingConsumer<CompletionEntry>> completions;
};

// Numbers at the edges of some range.
uint32_t Edge(std::mt19937* random) {
  constexpr uint32_t kEdges[] = {0,  1,  2,  3,  4,    5,    7,         8,          63,
                                 64, 65, 66, 99, 4095, 4096, INT32_MAX, 0x80000000, UINT32_MAX};
  return kEdges[(*random)() % std::size(kEdges)];
}

TEST_SUITE("unit") {
  TEST_CASE("calls of a hostile engine are answered or refused, whatever they say") {
    Calls f;
    const SequenceHandle sequence = f.Open("r");
    const SegmentLayout& layout = f.segment->layout();
    std::mt19937 random(20260101);
    int answered = 0;
    int refused = 0;
    int malformed = 0;
    for (int i = 0; i < 20000; ++i) {
      const uint32_t kind = 1 + random() % 5;  // 5 is none
      const uint32_t num_records = random() % 8 == 0 ? Edge(&random) : random() % 5;
      // The words of four records; most of them mean nothing in particular.
      std::vector<uint32_t> words(layout.call_record_bytes);
      for (uint32_t& word : words) word = random() % 4 == 0 ? Edge(&random) : random() % 4;
      std::memcpy(f.request(), words.data(), words.size() * 4);
      for (uint32_t r = 0; r < 4; ++r) {
        if (random() % 4 == 0) continue;
        char* record = f.request() + r * layout.call_record_bytes;
        std::memcpy(record, &sequence, sizeof(sequence));
        const int32_t no_mask = -1;
        if (random() % 4 != 0) std::memcpy(record + 12, &no_mask, sizeof(no_mask));
      }
      uint32_t bytes =
          static_cast<uint32_t>(CallBytes(layout, static_cast<SubmissionKind>(kind), num_records));
      if (random() % 16 == 0) bytes = Edge(&random);
      const uint32_t flags = f.Submit(kind, num_records, bytes);
      answered += flags == 0 ? 1 : 0;
      malformed += flags == kCompletionMalformed ? 1 : 0;
      if (flags != kCompletionRefused) continue;
      ++refused;
      RefusalRecord why;
      std::memcpy(&why, f.answer(), sizeof(why));
      CHECK(why.code < 0);
      CHECK(why.text_bytes > 0);
      CHECK(why.text_bytes <= sizeof(why.text));
    }
    // Each of the three outcomes came often.
    CHECK(answered > 500);
    CHECK(refused > 2000);
    CHECK(malformed > 2000);
    CHECK(f.session->channel().fault() == ChannelFault::kNone);
    CHECK(f.session->counters().kept == 0);
    CHECK(f.SetCoins(sequence, {}) == 0);
  }

  TEST_CASE("the records of a call end with the area: more than max_batch are none") {
    Calls f;
    const SegmentLayout& layout = f.segment->layout();
    for (const uint32_t kind : {1u, 2u, 4u}) {
      CHECK(f.Submit(kind, 4, 4 * layout.call_record_bytes) == kCompletionRefused);
      CHECK(f.Submit(kind, 5, 5 * layout.call_record_bytes) == kCompletionMalformed);
      CHECK(f.Submit(kind, 4, 3 * layout.call_record_bytes) == kCompletionMalformed);
    }
    CHECK(f.Submit(3, 4096, 8 + 4096 * 24) == kCompletionRefused);
    CHECK(f.Submit(3, 4097, 8 + 4097 * 24) == kCompletionMalformed);
    CHECK(f.Submit(3, 0, 0) == kCompletionMalformed);  // without a sequence
    CHECK(f.Submit(5, 0, 0) == kCompletionMalformed);
  }

  TEST_CASE("a count that has no room in its list is refused before the list is read") {
    Calls f;
    const uint32_t rows[] = {0};
    const TokenId ids[] = {0};
    const ScoreInput call = {.rows = rows, .ids = ids, .num_ids = 1, .request = {}};
    const uint32_t bytes = WriteCalls(f.segment->layout(), {&call, 1}, f.request());
    CHECK(f.Submit(2, 1, bytes) == 0);
    // Every id after the record is inside the vocabulary, so only the count can be wrong.
    for (const uint32_t num_chosen : {65u, 0x7fffffffu, 0xffffffffu}) {
      std::memcpy(f.request() + offsetof(ScoreRecord, num_chosen), &num_chosen, 4);
      CHECK(f.Submit(2, 1, bytes) == kCompletionRefused);
      RefusalRecord why;
      std::memcpy(&why, f.answer(), sizeof(why));
      CHECK(std::string(why.text, why.text_bytes).starts_with("chosen_ids has "));
    }
  }

  TEST_CASE("the coins of all open sequences have one bound; closing one makes room") {
    Calls f;
    const std::vector<CoinRecord> coins(4096, {1, 0, 1, SPECD_COIN_DRAFT, 5});
    std::vector<SequenceHandle> sequences;
    for (int i = 0; i < 257; ++i) sequences.push_back(f.Open(std::to_string(i)));
    for (int i = 0; i < 256; ++i) CHECK(f.SetCoins(sequences[static_cast<size_t>(i)], coins) == 0);
    CHECK(f.SetCoins(sequences[0], coins) == 0);  // in place of its own coins
    CHECK(f.SetCoins(sequences[256], {coins[0]}) == kCompletionRefused);
    RefusalRecord why;
    std::memcpy(&why, f.answer(), sizeof(why));
    CHECK(why.code == SPECD_ERROR_EXHAUSTED);
    REQUIRE(f.session->CloseSequence(sequences[7]).ok());
    CHECK(f.SetCoins(sequences[256], coins) == 0);
  }

  TEST_CASE("a device that fails in a call is told to the engine and to the daemon") {
    SessionFixture f(false);
    const SequenceHandle s = f.Open("r");
    TensorSpec spec;
    spec.num_rows = 4;
    REQUIRE(f.session->Bind(TensorRole::kDraftRows, 1, spec).ok());
    CHECK(f.session->WhyDeviceFailed().empty());
    f.backend->next_status = absl::InternalError("the device fell off the bus");
    DraftInput call;
    call.sequence = s;
    call.num_children = 1;
    REQUIRE(f.engine->Call({&call, 1}, 0) == PushResult::kOk);
    REQUIRE(StepSession(f.session));
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    REQUIRE(done.children.size() == 1);
    CHECK(done.children[0].status == RoundStatus::kDeviceError);
    CHECK(f.session->device_failed());
    CHECK(f.session->WhyDeviceFailed() == "the device fell off the bus");
    f.backend->next_status = absl::InternalError("and did not come back");
    const ScoreInput score = {.rows = f.rows, .ids = f.tokens, .num_ids = 1, .request = {}};
    REQUIRE(f.engine->Call(std::span<const ScoreInput>(&score, 1), 0) == PushResult::kOk);
    REQUIRE(StepSession(f.session));
    REQUIRE(f.engine->Poll(&done));
    REQUIRE(done.results.size() == 1);
    CHECK(done.results[0].status == RoundStatus::kDeviceError);
    CHECK(f.session->WhyDeviceFailed() == "and did not come back");
  }
}

}  // namespace
}  // namespace specd
