// Openings, forks and ends of sequences that are asked for over ControlService.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/base/error.h"
#include "tests/daemon/session/control_client.h"
#include "tests/support/sealed_memory.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("a sequence is opened, aborted and closed; a second close finds nothing") {
    ControlClient client;
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "r";
    open.numbers = {{"temperature", 0.5}};
    open.has_seed = true;
    open.seed = 99;
    const Reply reply = client.Call(open);
    const auto* sequence = std::get_if<SequenceReply>(&reply);
    REQUIRE(sequence != nullptr);
    CHECK(sequence->seeds == std::vector<uint64_t>{99});
    CHECK(sequence->verify == SPECD_VERIFY_AUTO);
    CHECK(client.Code(AbortSequenceRequest{sequence->sequences[0]}) == SPECD_OK);
    CHECK(client.fixture.engine->ReadState(0).finish_reason == SPECD_FINISH_ABORT);
    CHECK(client.Code(CloseSequenceRequest{sequence->sequences[0]}) == SPECD_OK);
    CHECK(client.Code(CloseSequenceRequest{sequence->sequences[0]}) == SPECD_ERROR_NOT_FOUND);
  }

  TEST_CASE("every parameter of an opening arrives where it is used") {
    ControlClient client;
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "r";
    open.numbers = {{"verify", SPECD_VERIFY_TOKEN},
                    {"temperature", 0.5},
                    {"draft_temperature", 0.8},
                    {"max_tokens", 5},
                    {"ignore_eos", 1},
                    {"include_stop", 1},
                    {"skip_special_tokens", 0}};
    open.has_seed = true;
    open.seed = 99;
    open.stop_token_ids = {6};
    open.stop_strings = {"x"};
    Reply reply = client.Call(open);
    const uint64_t first = std::get<SequenceReply>(reply).sequences[0];
    CHECK(std::get<SequenceReply>(reply).seeds[0] == 99);
    CHECK(std::get<SequenceReply>(reply).verify == SPECD_VERIFY_TOKEN);
    const TokenEvent info = client.OpenedInfo();
    CHECK(info.opening()->request_id == "r");
    CHECK(info.opening()->stop_strings == std::vector<std::string>{"x"});
    CHECK(info.opening()->include_stop);
    CHECK_FALSE(info.opening()->skip_special_tokens);

    CompletionView done = client.Round(first, Confirm(3, {1, 7, 1, 1}));  // 7 is EOS
    CHECK(done.results[0].finish_reason == FinishReason::kNone);
    done = client.Round(first, Confirm(3, {1, 1, 1, 1}));
    CHECK(done.results[0].finish_reason == FinishReason::kLength);
    CHECK(done.results[0].total_kept == 5);
    const Task& task = client.fixture.backend->seen[0];
    CHECK(task.method == VerifyMethod::kToken);
    CHECK(task.target_scale == static_cast<float>(2.8853900817779268));  // log2(e) / 0.5
    CHECK(task.draft_scale == static_cast<float>(1.8033688011112043));   // log2(e) / 0.8
    CHECK(task.seed == 99);

    open.request_id = "s";
    reply = client.Call(open);
    done = client.Round(std::get<SequenceReply>(reply).sequences[0], Confirm(1, {1, 6}));
    CHECK(done.results[0].finish_reason == FinishReason::kStop);
    CHECK(done.results[0].stop_token == 6);
  }

  TEST_CASE("a fork and the counters are asked for in messages of their own") {
    ControlClient client;
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "r";
    Reply reply = client.Call(open);
    const uint64_t source = std::get<SequenceReply>(reply).sequences[0];
    client.Round(source, Confirm(2, {1, 2, 3}));
    reply = client.Call(ForkSequenceRequest{source, "s", true, 17});
    const auto* fork = std::get_if<SequenceReply>(&reply);
    REQUIRE(fork != nullptr);
    REQUIRE(fork->sequences.size() == 1);
    CHECK(fork->sequences[0] != source);
    CHECK(fork->seeds == std::vector<uint64_t>{17});
    CHECK(client.Code(ForkSequenceRequest{source, "s", false, 0}) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(client.Code(ForkSequenceRequest{source, "t", false, 0}) == SPECD_OK);
    reply = client.Call(GetStatsRequest{});
    const auto* stats = std::get_if<StatsReply>(&reply);
    REQUIRE(stats != nullptr);
    CHECK(stats->counters.rounds == 1);
    CHECK(stats->counters.drafted == 3);
    CHECK(stats->counters.accepted == 2);
    CHECK(stats->counters.kept == 3);
  }

  TEST_CASE("what a request has made goes if its answer was given up, and nothing else does") {
    ControlClient client;
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "kept";
    REQUIRE(client.Code(open) == SPECD_OK);
    open.request_id = "r";
    open.numbers = {{"n", 2}};
    REQUIRE(client.Code(open) == SPECD_OK);
    CHECK(client.Code(GiveUpRequest{client.next_id}) == SPECD_OK);
    CHECK(client.fixture.names.Claim("r"));
    CHECK(client.fixture.names.Claim("r#1"));
    CHECK_FALSE(client.fixture.names.Claim("kept"));

    const UniqueFd file = SealedMemory(4096);
    const Reply region = client.Call(RegisterRegionRequest{4096}, file.get());
    REQUIRE(std::holds_alternative<RegionReply>(region));
    CHECK(client.Code(GiveUpRequest{client.next_id}) == SPECD_OK);
    CHECK(client.Code(UnregisterRegionRequest{std::get<RegionReply>(region).region}) ==
          SPECD_ERROR_NOT_FOUND);

    // An earlier request, one that makes nothing, and one that was refused.
    CHECK(client.Code(GiveUpRequest{3}) == SPECD_OK);
    CHECK(client.Code(GetStatsRequest{}) == SPECD_OK);
    CHECK(client.Code(GiveUpRequest{client.next_id}) == SPECD_OK);
    open.request_id = "kept";
    open.numbers = {};
    CHECK(client.Code(open) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(client.Code(GiveUpRequest{client.next_id}) == SPECD_OK);
    CHECK_FALSE(client.fixture.names.Claim("kept"));
  }

  TEST_CASE("service: openings beyond the rate are refused, and each kind of opening counts") {
    ControlClient client;
    SessionOptions options;
    options.identity = {3, 77};
    options.limits = SessionFixture::kLimits;
    options.profile = &client.fixture.profile;
    options.clock = &client.fixture.clock;
    options.names = &client.fixture.names;
    options.openings_per_second = 3;
    client.fixture.Attach(options, std::make_unique<ScriptedBackend>());
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "two";
    open.numbers = {{"n", 2.0}};
    const Reply opened = client.Call(open);
    REQUIRE(std::holds_alternative<SequenceReply>(opened));
    const uint64_t source = std::get<SequenceReply>(opened).sequences.front();
    CHECK(client.Code(ForkSequenceRequest{source, "fork", false, 0}) == SPECD_OK);
    open.request_id = "more";
    open.numbers = {};
    const UniqueFd file(memfd_create("openings", MFD_CLOEXEC));
    const std::pair<Request, int> refused[] = {{open, -1},
                                               {ForkSequenceRequest{source, "x", false, 0}, -1},
                                               {OpenSequencesRequest{1, 100, false}, file.get()}};
    for (const auto& each : refused) {
      const Reply reply = client.Call(each.first, each.second);
      REQUIRE(std::holds_alternative<ErrorReply>(reply));
      CHECK(std::get<ErrorReply>(reply).field == "session_openings_per_second");
    }
    // Other messages go on, and a later opening does.
    CHECK(client.Code(GetStatsRequest{}) == SPECD_OK);
    client.fixture.clock.AdvanceNs(1'000'000'000);
    CHECK(client.Code(open) == SPECD_OK);
    const SessionUse use = client.fixture.session->Use();
    CHECK(use.openings == 4);
    CHECK(use.refusals == 3);
    CHECK(use.sequences == 4);
    CHECK(use.sequences_max == 4);
    CHECK(use.openings_per_second_max == 3);
    // An opening that is refused for another reason counts as one.
    client.fixture.clock.AdvanceNs(1'000'000'000);
    for (int i = 0; i < 3; ++i) CHECK(client.Code(open) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(client.Code(open) == SPECD_ERROR_EXHAUSTED);
  }

  TEST_CASE("service: an operator sees the rounds in flight") {
    ControlClient client;
    client.Attach();
    client.fixture.BindRows();
    const SequenceHandle handle = client.fixture.Open("s");
    client.fixture.backend->script = {ScriptedOutcome{}, ScriptedOutcome{}};
    CHECK(client.fixture.session->Use().rounds == 0);
    CHECK(client.fixture.session->Use().rounds_max == 2);
    for (const uint64_t count : {1, 2}) {
      REQUIRE(client.fixture.Submit({handle}, count) == PushResult::kOk);
      CHECK(client.fixture.session->Use().rounds == count);
    }
    REQUIRE(StepSession(client.fixture.session));
    CHECK(client.fixture.session->Use().rounds == 1);
  }
}

}  // namespace
}  // namespace specd
