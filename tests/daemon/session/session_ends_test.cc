// The ends of a stream: by its own rules, by the text side, with its session, or on a bad row. The
// tests check the engine's words and the text side's events.
#include <doctest/doctest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "daemon/session/session.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/sealed_memory.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("the counters of a session were gone with it") {
    const auto meters = std::make_unique<RoundMeters>();
    const auto totals = [&meters] {
      Counters sums;
#define SPECD_COUNTER(name, metric, meaning) sums.name = meters->name.value();
#include "kernels/core/counter_list.inc"
      return sums;
    };
    Counters expected;
    for (const bool faults : {false, true}) {
      SessionFixture f;
      SessionOptions options = f.session->options();
      options.meters = meters.get();
      auto owned = std::make_unique<ScriptedBackend>();
      f.backend = owned.get();
      f.Attach(options, std::move(owned));
      const SequenceHandle s = f.Open("r", 9);
      f.backend->script = {Confirm(2, {1, 2, 5})};
      f.Submit({s});
      StepSession(f.session);
      expected.rounds += 1;
      expected.sequence_rounds += 1;
      expected.drafted += 3;
      expected.accepted += 2;
      expected.kept += 3;
      CHECK(totals() == expected);
      if (faults) {  // a round that is called off is not counted
        f.backend->script = {Confirm(2, {1, 2, 5})};
        f.Submit({s}, 2);
        f.session->regions_host().has_faulted->store(true);
        StepSession(f.session);
      }
      f.session->End();
      f.session->EndAll();
      CHECK(totals() == expected);
    }
    CHECK(totals().kept == 6);
  }

  TEST_CASE("a round whose rows had a missing page is aborted, and its session ends") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r", 9);
    f.backend->script = {Confirm(2, {1, 2, 5})};
    f.Submit({s});
    f.session->regions_host().has_faulted->store(true);  // as the handler of SIGBUS does
    StepSession(f.session);
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kAborted);
    CHECK(done.results[0].num_kept == 0);
    CHECK(f.session->ended());
    const std::vector<TokenEvent> events = f.Events();
    REQUIRE(events.size() == 2);  // the opening, and no tokens
    CHECK(events[1].kind() == TokenEventKind::kEnd);
    CHECK(events[1].offset == 0);
    CHECK(events[1].end()->finish_reason == SPECD_FINISH_ABORT);
  }

  TEST_CASE("a round that a missing page aborted had written next tokens before") {
    for (const bool has_faulted : {false, true}) {
      CAPTURE(has_faulted);
      SessionFixture f;
      const uint64_t size_bytes = SessionFixture::kLimits.max_sequences * sizeof(TokenId);
      const auto region = f.session->RegisterRegion(SealedMemory(size_bytes), size_bytes);
      REQUIRE(region.ok());
      TensorSpec spec;
      spec.num_rows = SessionFixture::kLimits.max_sequences;
      REQUIRE(f.session->Bind(TensorRole::kNextToken, *region, spec).ok());
      const SequenceHandle s = f.Open("r", 9);
      f.backend->script = {Confirm(2, {1, 2, 5})};
      f.Submit({s});
      int num_early = 0;
      int num_written = 0;
      f.backend->inspect = [&](const RoundBatch& batch) {
        num_early += batch.num_slot_outputs;
        // The handler of SIGBUS does this while rows are read.
        f.session->regions_host().has_faulted->store(has_faulted);
      };
      f.backend->write_next = [&](const RoundBatch& batch) {
        num_written += batch.num_slot_outputs;
        return absl::OkStatus();
      };
      StepSession(f.session);
      CompletionView done;
      REQUIRE(f.engine->Poll(&done));
      CHECK(done.results[0].status == (has_faulted ? RoundStatus::kAborted : RoundStatus::kOk));
      CHECK(num_early == 0);
      CHECK(num_written == (has_faulted ? 0 : 1));
    }
  }

  TEST_CASE("an end follows its last tokens, once, and the state word agrees") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r", 2);
    f.backend->script = {Confirm(2, {1, 2, 5})};
    f.Submit({s});
    StepSession(f.session);
    f.Submit({s});
    StepSession(f.session);
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].finish_reason == FinishReason::kLength);
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kFinished);
    const std::vector<TokenEvent> events = f.Events();
    REQUIRE(events.size() == 3);
    CHECK(events[1].tokens()->ids.size() == 2);
    CHECK(events[2].kind() == TokenEventKind::kEnd);
    CHECK(events[2].offset == 2);
    CHECK(events[2].end()->finish_reason == SPECD_FINISH_LENGTH);
    const SequenceState state = f.engine->ReadState(SlotOf(s));
    CHECK(IsStateOf(state, s));
    CHECK(state.finish_reason == SPECD_FINISH_LENGTH);
    CHECK(state.kept_tokens == 2);
  }

  TEST_CASE("a stop string reported by the text side stops the engine") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    f.backend->script = {Confirm(2, {1, 2, 5})};
    f.Submit({s});
    StepSession(f.session);
    f.session->FinishFromText(s, FinishReason::kStop, 2);
    CHECK(f.engine->ReadState(SlotOf(s)).finish_reason == SPECD_FINISH_STOP);
    CHECK(f.engine->ReadState(SlotOf(s)).kept_tokens == 2);
    f.Submit({s});
    StepSession(f.session);
    CompletionView done;
    f.engine->Poll(&done);
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kFinished);
    CHECK(done.results[0].total_kept == 2);
    const std::vector<TokenEvent> events = f.Events();
    REQUIRE(events.size() == 3);
    CHECK(events[2].kind() == TokenEventKind::kEnd);
    CHECK(events[2].end()->finish_reason == SPECD_FINISH_STOP);
    CHECK(events[2].offset == 2);
  }

  TEST_CASE("a stop string that moves a provisional end makes no second end") {
    SessionFixture f;
    SequenceParams params;
    params.max_tokens = 3;
    params.stop_strings = {"x"};
    const SequenceHandle s = f.session->OpenSequences("r", params)->front().handle;
    f.backend->script = {Confirm(2, {1, 2, 5})};
    f.Submit({s});
    StepSession(f.session);
    f.session->FinishFromText(s, FinishReason::kStop, 2);
    CHECK(f.engine->ReadState(SlotOf(s)).kept_tokens == 2);
    int ends = 0;
    for (const TokenEvent& event : f.Events()) ends += event.kind() == TokenEventKind::kEnd ? 1 : 0;
    CHECK(ends == 1);
  }

  TEST_CASE("the sum of logprobs: in completions, in the state of either end, in the events") {
    SessionFixture f;
    SequenceParams params;
    params.max_tokens = 3;
    params.logprobs = 0;
    params.stop_strings = {"x"};
    const SequenceHandle s = f.session->OpenSequences("r", params)->front().handle;
    ScriptedOutcome scripted = Confirm(2, {1, 2, 5});
    scripted.scores = {{{1, -0.1f, 1}}, {{2, -1e9f, 1}}, {{5, -0.3f, 1}}};
    f.backend->script = {scripted};
    const double all = static_cast<double>(-0.1f) + -1e9 + static_cast<double>(-0.3f);
    f.Submit({s});
    StepSession(f.session);
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].cumulative_logprob == all);
    const SequenceState first = f.engine->ReadState(SlotOf(s));
    CHECK(f.engine->ReadLogprob(SlotOf(s), first) == all);
    const std::vector<TokenEvent> events = f.Events();
    REQUIRE(events.size() == 3);
    CHECK(events[0].opening()->cumulative_logprob == 0);
    REQUIRE(events[1].tokens()->logprobs.size() == 3);
    CHECK(events[1].tokens()->logprobs[2] == -0.3f);
    CHECK(events[2].end()->cumulative_logprob == all);

    f.session->FinishFromText(s, FinishReason::kStop, 1);
    f.Submit({s});  // answered FINISHED, and written once more
    StepSession(f.session);
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].cumulative_logprob == static_cast<double>(-0.1f));
    CHECK(f.engine->ReadLogprob(SlotOf(s), f.engine->ReadState(SlotOf(s))) ==
          static_cast<double>(-0.1f));
    // An engine that has still read the first end's word finds that end's sum.
    CHECK(f.engine->ReadLogprob(SlotOf(s), first) == all);
  }

  TEST_CASE("without logprobs no event has any") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r", 1);
    f.backend->script = {Confirm(0, {1})};
    f.Submit({s});
    StepSession(f.session);
    for (const TokenEvent& event : f.Events()) {
      if (event.tokens() != nullptr) CHECK(event.tokens()->logprobs.empty());
      if (event.opening() != nullptr) CHECK(std::isnan(event.opening()->cumulative_logprob));
      if (event.end() != nullptr) CHECK(std::isnan(event.end()->cumulative_logprob));
    }
  }

  TEST_CASE("EndAll ends every open stream exactly once and frees its name") {
    SessionFixture f;
    const SequenceHandle a = f.Open("a", 1);
    f.Open("b");
    f.backend->script = {Confirm(0, {1})};
    f.Submit({a});
    StepSession(f.session);
    CHECK(f.session->EndAll());
    CHECK_FALSE(f.session->EndAll());
    CHECK_FALSE(f.session->Drained());
    int ends = 0;
    for (const TokenEvent& event : f.Events()) ends += event.kind() == TokenEventKind::kEnd ? 1 : 0;
    CHECK(ends == 2);
    CHECK(f.session->Drained());
    CHECK(f.names.Claim("a"));
    CHECK(f.names.Claim("b"));
    CHECK(f.engine->daemon_state() == DaemonState::kStopped);
    f.Submit({a});
    CHECK_FALSE(StepSession(f.session));
  }

  TEST_CASE("a session that has ended takes no more calls") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    f.session->EndAll();
    CHECK(f.names.Claim("r"));  // another stream has the name now
    CHECK(ErrorCodeOf(f.session->CloseSequence(s)) == SPECD_ERROR_SHUTDOWN);
    CHECK(ErrorCodeOf(f.session->AbortSequence(s)) == SPECD_ERROR_SHUTDOWN);
    CHECK(ErrorCodeOf(f.session->OpenSequences("x", SequenceParams{}).status()) ==
          SPECD_ERROR_SHUTDOWN);
    CHECK_FALSE(f.names.Claim("r"));  // and keeps the name
    f.session->FinishFromText(s, FinishReason::kStop, 0);
    CHECK(f.engine->ReadState(SlotOf(s)).finish_reason == SPECD_FINISH_ABORT);
  }

  TEST_CASE("a closed running sequence ends once, as aborted, and its handle is nobody's") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    f.backend->script = {Confirm(0, {1})};
    f.Submit({s});
    StepSession(f.session);
    REQUIRE(f.session->CloseSequence(s).ok());
    const std::vector<TokenEvent> events = f.Events();
    REQUIRE(events.size() == 3);
    CHECK(events[2].kind() == TokenEventKind::kEnd);
    CHECK(events[2].end()->finish_reason == SPECD_FINISH_ABORT);
    CHECK(events[2].offset == 1);
    CHECK_FALSE(IsStateOf(f.engine->ReadState(SlotOf(s)), s));
  }

  TEST_CASE("a row without a distribution: the tokens before it are published, then the end") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    ScriptedOutcome broken = Confirm(1, {1});
    broken.outcome.status = OutcomeStatus::kBadTargetRow;
    f.backend->script = {broken};
    f.Submit({s});
    StepSession(f.session);
    const std::vector<TokenEvent> events = f.Events();
    REQUIRE(events.size() == 3);
    CHECK(events[1].tokens()->ids.size() == 1);
    CHECK(events[1].tokens()->stop_token == kNoToken);
    CHECK(events[2].end()->finish_reason == SPECD_FINISH_ERROR);
    CHECK(events[2].offset == 1);
  }

  TEST_CASE("accepted drafts behind a token that ended the stream do not count") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    f.backend->script = {Confirm(3, {1, 7, 2, 3})};  // 7 is EOS
    f.Submit({s});
    StepSession(f.session);
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].num_kept == 2);
    CHECK(done.results[0].num_accepted == 2);
    CHECK(done.results[0].stop_token == 7);
    const std::vector<TokenEvent> events = f.Events();
    CHECK(events[1].tokens()->accepted == 2);
    CHECK(events[1].tokens()->stop_token == 7);
  }
}

}  // namespace
}  // namespace specd
