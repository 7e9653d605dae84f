// The C interface over a socket gives the same answers as embedded mode. A file of lists travels
// beside the messages.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/daemon/server/server_fixture.h"
#include "tests/support/c_drafts.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

using test::EnginePtr;
using test::LastErrorHas;
using test::OpenBoundEngine;
using test::OpenEngine;
using test::ServerFixture;
using test::ServerOptions;

TEST_SUITE("unit") {
  TEST_CASE(
      "attached: a prompt of 128k ids and outputs arrive, and the output goes on behind them") {
    ServerFixture f;
    const EnginePtr engine = OpenBoundEngine(f.uri, ServerOptions());
    const std::vector<int32_t> prompt(131072, 3);
    const std::vector<int32_t> outputs = {1, 2};
    specd_params params;
    specd_params_init(&params);
    params.prompt_ids = {prompt.data(), prompt.size()};
    params.output_ids = {outputs.data(), outputs.size()};
    specd_sequence_info info = Sized<specd_sequence_info>();
    REQUIRE(specd_open_sequence(engine.get(), "r", &params, &info) == SPECD_OK);
    const uint32_t row = 0;
    const specd_draft part = ChainDraft(info.sequence, 0, nullptr, &row);
    f.session.backend->script = {Confirm(0, {5})};
    REQUIRE(specd_submit(engine.get(), 1, &part, 1) == SPECD_OK);
    REQUIRE(StepSession(f.session.session));
    specd_completion done = SizedCompletion();
    REQUIRE(specd_poll(engine.get(), &done, 0) == SPECD_OK);
    CHECK(done.results[0].total_kept == 3);
    CHECK(f.session.backend->seen[0].first_position == 2);
    // An id outside the vocabulary anywhere in it is refused.
    std::vector<int32_t> wrong = prompt;
    wrong.back() = 8;
    params.prompt_ids = {wrong.data(), wrong.size()};
    CHECK(specd_open_sequence(engine.get(), "s", &params, &info) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("prompt"));
  }

  TEST_CASE("attached: several sequences, a fork, and the counters") {
    ServerFixture f;
    const EnginePtr engine = OpenBoundEngine(f.uri, ServerOptions());
    specd_params params;
    specd_params_init(&params);
    params.n = 2;
    params.has_seed = 1;
    params.seed = 40;
    std::vector<specd_sequence_info> infos(2, Sized<specd_sequence_info>());
    REQUIRE(specd_open_sequence(engine.get(), "r", &params, infos.data()) == SPECD_OK);
    CHECK(infos[1].seed == 41);
    specd_sequence_info fork = Sized<specd_sequence_info>();
    const uint64_t seed = 9;
    REQUIRE(specd_fork(engine.get(), infos[1].sequence, "fork", &seed, &fork) == SPECD_OK);
    CHECK(fork.seed == 9);
    const int32_t drafts[] = {1, 2, 3};
    const uint32_t rows[] = {0, 1, 2, 3};
    const specd_draft part = ChainDraft(fork.sequence, 3, drafts, rows);
    f.session.backend->script = {Confirm(3, {1, 2, 3, 4})};
    REQUIRE(specd_submit(engine.get(), 1, &part, 1) == SPECD_OK);
    REQUIRE(StepSession(f.session.session));
    specd_engine_stats stats;
    specd_engine_stats_init(&stats);
    REQUIRE(specd_get_engine_stats(engine.get(), &stats) == SPECD_OK);
    CHECK(stats.rounds == 1);
    CHECK(stats.accepted == 3);
    CHECK(stats.kept == 4);
    CHECK(f.session.backend->seen[0].seed == 9);
  }

  TEST_CASE("threads belong to embedded mode; a daemon has its own") {
    ServerFixture f;
    specd_options options = ServerOptions();
    options.threads = 2;
    specd_engine* engine = nullptr;
    CHECK(specd_open(f.uri.c_str(), &options, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("--threads=2"));
    options.threads = 17;
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("threads = 17"));
    options.threads = 2;
    const EnginePtr embedded = OpenEngine("embedded:cpu", options);
  }

  TEST_CASE("a stream belongs to rounds on a GPU of this process") {
    ServerFixture f;
    specd_options options = ServerOptions();
    CHECK(options.cuda_stream == nullptr);
    options.cuda_stream = &options;
    specd_engine* engine = nullptr;
    for (const char* uri : {f.uri.c_str(), "embedded:cpu"}) {
      CHECK(specd_open(uri, &options, &engine) == SPECD_ERROR_UNSUPPORTED);
      CHECK(LastErrorHas("cuda_stream"));
      CHECK(LastErrorHas("embedded:cuda"));
      CHECK(LastErrorHas(uri));
    }
  }
}

}  // namespace
}  // namespace specd
