// Calls that read many rows run in pieces in the verify loop, as long rounds do: other sessions,
// hang-ups and the end of the loop come between two pieces.
//
// Bug that this would catch: a call of 4096 requests with 65 rows and 64 chosen ids each held the
// verify thread for minutes, and every other engine with it.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/server/verify_loop.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/session_fixture.h"

namespace specd {
namespace {

// A session whose calls have a piece for each request.
struct LongCalls : SessionFixture {
  LongCalls() {
    SessionOptions options = session->options();
    options.piece_work = 1;
    auto owned = std::make_unique<ScriptedBackend>();
    backend = owned.get();
    Attach(options, std::move(owned));
    TensorSpec spec;
    spec.num_rows = 4;
    REQUIRE(session->Bind(TensorRole::kDraftRows, 1, spec).ok());
    list.Add(session);
  }

  // Three ids, one in each request.
  void Score() {
    std::vector<ScoreInput> calls(3);
    for (size_t i = 0; i < calls.size(); ++i) {
      calls[i] = {.rows = rows,
                  .ids = tokens + i,
                  .num_ids = 1,
                  .request = {.enabled = true, .mode = ScoreMode::kRawLogprob}};
      ScriptedOutcome scored = Confirm(0, {tokens[i]});
      scored.scores = {{{tokens[i], -1.0f - static_cast<float>(i), 1}}};
      backend->script.push_back(scored);
    }
    REQUIRE(engine->Call(std::span<const ScoreInput>(calls), 0) == PushResult::kOk);
  }

  // A token for each of three new sequences.
  void SampleDraft() {
    std::vector<DraftInput> calls(3);
    for (size_t i = 0; i < calls.size(); ++i) {
      sequences.push_back(Open("s" + std::to_string(i)));
      calls[i].sequence = sequences.back();
      calls[i].num_children = 1;
      ScriptedOutcome drawn;
      drawn.outcome.num_tokens = 1;
      drawn.samples = {{.id = static_cast<TokenId>(i), .count = 1, .weight = 1, .mass = 1}};
      backend->script.push_back(drawn);
    }
    REQUIRE(engine->Call(std::span<const DraftInput>(calls), 0) == PushResult::kOk);
  }
  size_t num_run() const { return backend->seen.size(); }

  std::vector<SequenceHandle> sequences;
  SessionList list;
  VerifyLoop loop{&list, {0, [](std::string_view) {}, [](Session&, ChannelFault) {}}};
};

TEST_SUITE("unit") {
  TEST_CASE("a long call stalled every other engine until it was done") {
    SessionFixture small;  // outlives the loop, which ends its session
    LongCalls f;
    f.list.Add(small.session);
    const SequenceHandle s = small.Open("small");
    f.Score();
    CompletionView done;
    for (uint32_t piece = 1; piece <= 2; ++piece) {
      small.backend->script = {Confirm(0, {1})};
      REQUIRE(small.Submit({s}) == PushResult::kOk);
      CHECK(f.loop.Step());
      CHECK(f.num_run() == piece);
      REQUIRE(small.engine->Poll(&done));
      CHECK(done.results[0].total_kept == piece);
      CHECK_FALSE(f.engine->Poll(&done));
    }
    CHECK(f.loop.Step());
    REQUIRE(f.engine->Poll(&done));
    REQUIRE(done.results.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      REQUIRE(done.results[i].num_kept == 1);
      CHECK(done.results[i].scores[0].id == f.tokens[i]);
      CHECK(done.results[i].scores[0].value == -1.0f - static_cast<float>(i));
    }
    CHECK_FALSE(f.loop.Step());
  }

  TEST_CASE("a sequence that goes between two pieces of a call is answered so") {
    LongCalls f;
    f.SampleDraft();
    CHECK(f.loop.Step());
    REQUIRE(f.session->AbortSequence(f.sequences[0]).ok());
    REQUIRE(f.session->CloseSequence(f.sequences[1]).ok());
    // The slot is held: its sequence's lists are read by the pieces that are left.
    const SequenceHandle other = f.Open("other");
    CHECK(SlotOf(other) != SlotOf(f.sequences[1]));
    CHECK(f.loop.Step());
    CHECK(f.loop.Step());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    REQUIRE(done.children.size() == 3);
    CHECK(done.children[0].status == RoundStatus::kFinished);
    CHECK(done.children[0].children.empty());
    CHECK(done.children[1].status == RoundStatus::kUnknownSequence);
    CHECK(done.children[2].status == RoundStatus::kOk);
    REQUIRE(done.children[2].children.size() == 1);
    CHECK(done.children[2].children[0].id == 2);
    // The slot is free again: max_sequences is 4, and 3 are open.
    CHECK(SlotOf(f.Open("last")) == SlotOf(f.sequences[1]));
  }

  TEST_CASE("rows cannot be bound anew while a call is between two pieces") {
    LongCalls f;
    f.Score();
    CHECK(f.loop.Step());
    TensorSpec spec;
    spec.num_rows = 1;
    CHECK(ErrorCodeOf(f.session->Bind(TensorRole::kTargetRows, 1, spec)) == SPECD_ERROR_STATE);
    CHECK(f.loop.Step());
    CHECK(f.loop.Step());
    CHECK(f.session->Bind(TensorRole::kTargetRows, 1, spec).ok());
  }

  TEST_CASE("a hang-up between two pieces ends the call") {
    LongCalls f;
    f.SampleDraft();
    CHECK(f.loop.Step());
    CHECK(f.session->EndAll());
    CHECK_FALSE(f.session->is_between_pieces());
    CHECK_FALSE(f.loop.Step());
    CHECK(f.num_run() == 1);
  }

  TEST_CASE("a drain refuses a call that has pieces left, and does not wait for it") {
    LongCalls f;
    f.Score();
    CHECK(f.loop.Step());
    f.loop.Stop();
    f.loop.Run();
    CHECK(f.num_run() == 2);
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(ErrorCodeOf(done.refusal) == SPECD_ERROR_SHUTDOWN);
  }

  TEST_CASE("a missing page between two pieces of a call refuses it and ends the session") {
    LongCalls f;
    f.Score();
    CHECK(f.loop.Step());
    f.session->regions_host().has_faulted->store(true);  // as the handler of SIGBUS does
    CHECK(f.loop.Step());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(ErrorCodeOf(done.refusal) == SPECD_ERROR_REGION);
    CHECK(f.session->ended());
  }

  TEST_CASE("a device error in a piece of a call is the answer to all of it") {
    LongCalls f;
    f.Score();
    CHECK(f.loop.Step());
    f.backend->next_status = absl::InternalError("the device fell off the bus");
    CHECK(f.loop.Step());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    for (const SequenceResult& result : done.results) {
      CHECK(result.status == RoundStatus::kDeviceError);
    }
    CHECK(f.session->WhyDeviceFailed() == "the device fell off the bus");
  }
}

}  // namespace
}  // namespace specd
