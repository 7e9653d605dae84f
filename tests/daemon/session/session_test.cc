#include "daemon/session/session.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("a round goes through the rings and its tokens leave as events") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    CHECK_FALSE(StepSession(f.session));
    f.backend->script = {Confirm(2, {1, 2, 5})};
    REQUIRE(f.Submit({s}, 42) == PushResult::kOk);
    f.clock.AdvanceNs(500);
    REQUIRE(StepSession(f.session));
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.round_id == 42);
    REQUIRE(done.results.size() == 1);
    CHECK(done.results[0].num_accepted == 2);
    CHECK(done.results[0].num_kept == 3);
    CHECK(done.results[0].tokens[2] == 5);

    const std::vector<TokenEvent> events = f.Events();
    REQUIRE(events.size() == 2);
    CHECK(events[0].kind() == TokenEventKind::kOpen);
    CHECK(events[1].kind() == TokenEventKind::kTokens);
    CHECK(events[1].stream == events[0].stream);
    CHECK(events[1].offset == 0);
    CHECK(events[1].tokens()->ids.size() == 3);
    CHECK(events[1].tokens()->accepted == 2);
    CHECK(events[1].tokens()->ids[0] == 1);
    CHECK(events[1].time_ns == 501);
  }

  TEST_CASE("a publisher that is behind slows the engine and loses nothing") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r", 1'000'000);
    uint64_t taken = 0;
    for (int i = 0; i < 100'000; ++i) {
      f.backend->script = {Confirm(0, {1})};
      if (f.Submit({s}) == PushResult::kFull) break;
      if (StepSession(f.session)) ++taken;
      CompletionView done;
      f.engine->Poll(&done);
    }
    REQUIRE(taken < 100'000);
    const std::vector<TokenEvent> events = f.Events();
    CHECK(events.size() == taken + 1);
    uint32_t next = 0;
    for (size_t i = 1; i < events.size(); ++i) CHECK(events[i].offset == next++);
    f.backend->script = {Confirm(0, {1}), Confirm(0, {1})};
    CHECK(StepSession(f.session));  // there is room again
  }

  TEST_CASE("request ids: unique while open, bounded, printable UTF-8") {
    SessionFixture f;
    const SequenceHandle s = f.Open("same");
    const auto twice = f.session->OpenSequences("same", SequenceParams{});
    CHECK(std::string(twice.status().message()).find("\"same\"") != std::string::npos);
    CHECK(f.session->CloseSequence(s).ok());
    CHECK(f.session->OpenSequences("same", SequenceParams{}).ok());
    for (const std::string& bad :
         {std::string(), std::string(129, 'x'), std::string("a\nb"), std::string("a\xff")}) {
      const auto refused = f.session->OpenSequences(bad, SequenceParams{});
      CHECK(ErrorCodeOf(refused.status()) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(ErrorFieldOf(refused.status()) == "request_id");
    }
    CHECK(f.session->OpenSequences(std::string(128, 'x'), SequenceParams{}).ok());
  }

  TEST_CASE("a refused opening leaves no name behind") {
    SessionFixture f;
    SequenceParams params;
    params.temperature = 101;
    CHECK_FALSE(f.session->OpenSequences("r", params).ok());
    CHECK(f.names.Claim("r"));
    CHECK(f.Events().empty());
  }

  TEST_CASE("stop strings without a text side are refused, not ignored") {
    SequenceParams params;
    params.stop_strings = {"x"};
    SessionFixture without(true, false);
    const auto refused = without.session->OpenSequences("r", params);
    CHECK(ErrorCodeOf(refused.status()) == SPECD_ERROR_UNSUPPORTED);
    CHECK(ErrorFieldOf(refused.status()) == "stop_strings");
    SessionFixture with;
    CHECK(with.session->OpenSequences("r", params).ok());
    params.stop_strings = {"\xff"};
    CHECK(ErrorFieldOf(with.session->OpenSequences("s", params).status()) == "stop_strings");
  }

  TEST_CASE("an opening with outputs and stop strings brings the last ids") {
    SessionFixture f;
    const std::vector<TokenId> outputs = {1, 2};
    const std::vector<TokenId> prompt = {3, 4, 5, 6};
    SequenceParams params;
    params.stop_strings = {"x"};
    params.n = 2;
    REQUIRE(f.session->OpenSequences("r", params, {prompt, outputs}).ok());
    TokenEvent event;
    for (const char* name : {"r", "r#1"}) {
      REQUIRE(f.Pop(&event));
      CHECK(event.opening()->request_id == name);
      CHECK(event.offset == 2);
      CHECK(event.opening()->stop_strings == std::vector<std::string>{"x"});
      CHECK(event.opening()->prompt_tail == prompt);
      CHECK(event.opening()->output_tail == outputs);
      CHECK(event.opening()->forked_from == 0);
    }
    // Without a text side the opening is refused still, and its name stays free.
    SessionFixture without(true, false);
    const auto refused = without.session->OpenSequences("r", params, {prompt, outputs});
    CHECK(ErrorCodeOf(refused.status()) == SPECD_ERROR_UNSUPPORTED);
    CHECK(without.names.Claim("r"));
    // Either alone is fine.
    CHECK(f.session->OpenSequences("outputs", {}, {{}, outputs}).ok());
    params.n = 1;  // four slots
    CHECK(f.session->OpenSequences("stops", params, {outputs, {}}).ok());
  }

  TEST_CASE("a device fault is told to the engine and to the daemon") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    f.backend->next_status = absl::InternalError("sticky");
    f.Submit({s});
    REQUIRE(StepSession(f.session));
    CHECK(f.session->device_failed());
    CHECK(f.session->WhyDeviceFailed() == "sticky");
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kDeviceError);
  }

  TEST_CASE("a round is taken with room for its tokens and for every end, and not with one less") {
    SessionFixture f;
    std::vector<SequenceHandle> all = {f.Open("a", 1'000'000)};
    for (const char* name : {"b", "c", "d"}) all.push_back(f.Open(name, 1));
    CompletionView done;
    do {
      f.engine->Poll(&done);
      f.backend->script = {Confirm(0, {1})};
      f.Submit({all[0]});
    } while (StepSession(f.session));
    // The waiting round takes the room that one popped event frees. The round after it brings the
    // tokens and the ends of all four: eight events, for which there is now room for seven.
    TokenEvent event;
    const auto pop = [&] { REQUIRE(f.Pop(&event)); };
    pop();
    REQUIRE(StepSession(f.session));
    f.engine->Poll(&done);
    REQUIRE(f.Submit(all) == PushResult::kOk);
    f.backend->script = {Confirm(0, {7}), Confirm(0, {1}), Confirm(0, {1}), Confirm(0, {1})};
    CHECK_FALSE(StepSession(f.session));
    pop();
    CHECK(StepSession(f.session));
    f.session->EndAll();
    int ends = 0;
    for (const TokenEvent& left : f.Events()) ends += left.kind() == TokenEventKind::kEnd ? 1 : 0;
    CHECK(ends == 4);
  }

  TEST_CASE("an opening is taken only with room for the end of every open sequence") {
    // With an even and with an odd number of events: one of the two meets the limit exactly.
    for (const bool odd : {false, true}) {
      SessionFixture f;
      const SequenceHandle a = f.Open("a");
      f.Open("b");
      f.Open("c");
      if (odd) {
        f.backend->script = {Confirm(0, {1})};
        f.Submit({a});
        REQUIRE(StepSession(f.session));
      }
      int opened = 3;
      absl::Status refused;
      while (refused.ok()) {
        auto info = f.session->OpenSequences("d" + std::to_string(opened), SequenceParams{});
        refused = info.status();
        if (!info.ok()) break;
        ++opened;
        REQUIRE(f.session->CloseSequence(info->front().handle).ok());
      }
      CHECK(ErrorCodeOf(refused) == SPECD_ERROR_EXHAUSTED);
      f.session->EndAll();
      int ends = 0;
      for (const TokenEvent& event : f.Events()) ends += event.kind() == TokenEventKind::kEnd;
      CHECK(ends == opened);
      CHECK(opened > 3);
    }
  }

  TEST_CASE("a fork's stream begins where its source stands; with stop strings there is none") {
    SessionFixture f;
    SequenceParams params;
    params.include_stop = true;
    params.skip_special_tokens = false;
    const auto source = f.session->OpenSequences("source", params);
    REQUIRE(source.ok());
    f.backend->script = {Confirm(2, {1, 2, 4})};
    REQUIRE(f.Submit({source->front().handle}) == PushResult::kOk);
    REQUIRE(StepSession(f.session));
    f.Events();
    const auto fork = f.session->ForkSequence(source->front().handle, "fork", 9);
    REQUIRE(fork.ok());
    CHECK(fork->seed == 9);
    TokenEvent event;
    REQUIRE(f.Pop(&event));
    CHECK(event.kind() == TokenEventKind::kOpen);
    CHECK(event.offset == 3);
    CHECK(event.opening()->request_id == "fork");
    CHECK(event.opening()->include_stop);
    CHECK_FALSE(event.opening()->skip_special_tokens);
    CHECK(event.opening()->stop_strings.empty());
  }

  TEST_CASE("a fork names its source and has its stop strings") {
    bool text_side = true;
    SessionFixture f(true, [&text_side] { return text_side; });
    SequenceParams params;
    params.stop_strings = {"x", "yz"};
    const auto source = f.session->OpenSequences("source", params);
    REQUIRE(source.ok());
    f.backend->script = {Confirm(2, {1, 2, 4})};
    REQUIRE(f.Submit({source->front().handle}) == PushResult::kOk);
    REQUIRE(StepSession(f.session));
    const auto fork = f.session->ForkSequence(source->front().handle, "fork", std::nullopt);
    REQUIRE(fork.ok());
    REQUIRE(f.session->ForkSequence(fork->handle, "again", std::nullopt).ok());
    // The text side has the source's tokens when it reads of the copy.
    const std::vector<TokenEvent> events = f.Events();
    REQUIRE(events.size() == 4);
    CHECK(events[0].opening()->forked_from == 0);
    CHECK(events[1].kind() == TokenEventKind::kTokens);
    CHECK(events[2].opening()->forked_from == events[0].stream);
    CHECK(events[2].offset == 3);
    CHECK(events[2].opening()->stop_strings == params.stop_strings);
    CHECK(events[2].opening()->output_tail.empty());
    CHECK(events[3].opening()->forked_from == events[2].stream);
    CHECK(events[3].opening()->stop_strings == params.stop_strings);

    // A stop string moves the end of the copy to before the copy was made.
    f.session->FinishFromText(fork->handle, FinishReason::kStop, 2);
    const std::vector<TokenEvent> ends = f.Events();
    REQUIRE(ends.size() == 1);
    CHECK(ends[0].stream == events[2].stream);
    CHECK(ends[0].offset == 2);
    CHECK(ends[0].end()->finish_reason == SPECD_FINISH_STOP);

    text_side = false;  // nobody would find them
    const auto refused = f.session->ForkSequence(source->front().handle, "other", std::nullopt);
    CHECK(ErrorCodeOf(refused.status()) == SPECD_ERROR_UNSUPPORTED);
    CHECK(ErrorFieldOf(refused.status()) == "stop_strings");
    CHECK(f.names.Claim("other"));
  }
}

}  // namespace
}  // namespace specd
