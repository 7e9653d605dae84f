// The openings, forks and ends of a trace.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/daemon/recorder/traced_session.h"

namespace specd::test {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("a trace begins with its session, and names each opening and each end") {
    TracedSession traced({.trace_options = "level=rounds"});
    traced.FillRows(5);
    SequenceParams params;
    params.n = 2;
    params.has_seed = true;
    params.seed = 40;
    params.stop_token_ids = {3, 4};
    const std::vector<TokenId> prompt = {1, 2, 3};
    const std::vector<TokenId> outputs = {9};
    const auto opened =
        traced.session->OpenSequences("r", params, {.prompt = prompt, .outputs = outputs});
    REQUIRE(opened.ok());
    const SequenceHandle first = (*opened)[0].handle;
    const SequenceHandle second = (*opened)[1].handle;
    const auto fork = traced.session->ForkSequence(first, "f", 99);
    REQUIRE(fork.ok());
    REQUIRE(traced.session->AbortSequence(second).ok());
    REQUIRE(traced.session->CloseSequence(second).ok());
    traced.session->FinishFromText(fork->handle, FinishReason::kStop, 1);
    traced.Finish();

    const ReadTraceResult trace = traced.Read();
    REQUIRE(trace.infos.size() == 1);
    CHECK(trace.topics[0] == "info");
    const TraceInfo& info = trace.infos[0];
    CHECK(info.version == kTraceVersion);
    CHECK(info.specd_version == "test");
    CHECK(info.build == "a revision, a compiler");
    CHECK(info.backend == "cpu");
    CHECK(info.processor == "a CPU");
    CHECK(info.tokenizer == "tokenizer.json");
    CHECK(info.options == "level=rounds");
    CHECK(info.vocab_size == 64);
    CHECK(info.session == 9);
    CHECK(info.eos_token_ids == std::vector<TokenId>{63});

    REQUIRE(trace.openings.size() == 3);
    const TraceOpening& one = trace.openings[0];
    CHECK(one.sequence == first);
    CHECK(one.request_id == "r");
    CHECK(one.seed == 40);
    CHECK(one.num_prompt_ids == 3);
    CHECK(one.kept_tokens == 1);
    CHECK(one.stop_token_ids == std::vector<TokenId>{3, 4});
    CHECK(one.lists == std::vector<std::string>{"stop_token_ids"});
    CHECK(one.numbers == std::vector<std::pair<std::string, double>>{{"n", 2}});
    CHECK(trace.openings[1].request_id == "r#1");
    CHECK(trace.openings[1].seed == 41);
    // A fork has the parameters of its parent.
    const TraceOpening& forked = trace.openings[2];
    CHECK(forked.sequence == fork->handle);
    CHECK(forked.forked_from == first);
    CHECK(forked.request_id == "f");
    CHECK(forked.seed == 99);
    CHECK(forked.lists == one.lists);
    CHECK(forked.num_prompt_ids == 3);

    // The abort and the close of the second, the stop string of the fork, then the session's end.
    REQUIRE(trace.ends.size() == 4);
    CHECK(trace.ends[0].sequence == second);
    CHECK(trace.ends[0].reason == FinishReason::kAbort);
    CHECK(trace.ends[1].sequence == second);
    CHECK(trace.ends[1].reason == FinishReason::kNone);
    CHECK(trace.ends[2].sequence == fork->handle);
    CHECK(trace.ends[2].reason == FinishReason::kStop);
    CHECK(trace.ends[2].kept_tokens == 1);
    CHECK(trace.ends[3].sequence == first);
    CHECK(trace.ends[3].reason == FinishReason::kAbort);
  }

  TEST_CASE("a trace of one request has its samples and forks, and no other sequence") {
    TracedSession traced({.trace_options = "request=r"});
    traced.FillRows(5);
    SequenceParams params;
    params.max_tokens = 1000;
    params.n = 2;
    const auto opened = traced.session->OpenSequences("r", params);
    REQUIRE(opened.ok());
    const SequenceHandle other = traced.Open("rr");
    const auto fork = traced.session->ForkSequence((*opened)[1].handle, "x", 1);
    REQUIRE(fork.ok());
    const SequenceHandle mine = (*opened)[1].handle;
    traced.Round({TracedSession::Sampled(other)});
    traced.Round({TracedSession::Sampled(other), TracedSession::Sampled(mine),
                  TracedSession::Sampled(fork->handle)});
    traced.Finish();
    const ReadTraceResult trace = traced.Read();
    CHECK(trace.openings.size() == 3);
    CHECK(trace.Opening(other) == nullptr);
    REQUIRE(trace.rounds.size() == 1);
    const TraceRound& round = trace.rounds[0];
    CHECK(round.number == 2);  // rounds that are not recorded are counted
    REQUIRE(round.tasks.size() == 2);
    REQUIRE(round.answers.size() == 2);
    CHECK(round.answers[round.tasks[0].answer].sequence == mine);
    CHECK(round.answers[round.tasks[1].answer].sequence == fork->handle);
    for (const TraceEnd& end : trace.ends) CHECK(end.sequence != other);
  }

  TEST_CASE("a slot that is opened again for another request is not recorded") {
    TracedSession traced({.trace_options = "request=r"});
    traced.FillRows(5);
    const SequenceHandle first = traced.Open("r");
    REQUIRE(traced.session->CloseSequence(first).ok());
    const SequenceHandle second = traced.Open("s");
    REQUIRE(SlotOf(first) == SlotOf(second));
    traced.Round({TracedSession::Sampled(second)});
    traced.Finish();
    CHECK(traced.Read().rounds.empty());
  }
}

}  // namespace
}  // namespace specd::test
