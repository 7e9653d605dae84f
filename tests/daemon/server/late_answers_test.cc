// Answers of the daemon that come after the library's timeout. The session goes on, no later call
// takes such an answer for its own, and the daemon keeps nothing that the engine does not know.
#include <doctest/doctest.h>

#include <string>

#include "daemon/server/control_server.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/server/gated_server.h"
#include "tests/daemon/server/server_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EnginePtr;
using test::GatedServer;

// Openings of the engine wait at the gate, if they have stop strings.
struct LateEngine {
  LateEngine() {
    specd_options options = test::ServerOptions();
    options.timeout_ms = 2000;  // an attach must come within it on a loaded machine
    engine = test::OpenEngine(server.uri, options);
    for (specd_sequence_info& info : infos) info.struct_size = sizeof(info);
  }

  int Open(const char* name, bool is_held = true, uint32_t n = 1) {
    static const char* const kStop[] = {"stop"};
    static const int32_t kPrompt[] = {1, 2};
    specd_params params;
    specd_params_init(&params);
    params.prompt_ids = {kPrompt, 2};
    if (is_held) params.stop_strings = {kStop, 1};
    params.n = n;
    return specd_open_sequence(engine.get(), name, &params, infos);
  }
  // Whether the name is used by no sequence.
  bool IsFree(const std::string& name) {
    if (!server.names.Claim(name)) return false;
    server.names.Release(name);
    return true;
  }

  GatedServer server;
  EnginePtr engine;
  specd_sequence_info infos[2] = {};
};

TEST_SUITE("fault") {
  TEST_CASE("a call that timed out ended the session, and its late sequence stayed open") {
    LateEngine f;
    CHECK(f.Open("r", true, 2) == SPECD_ERROR_TIMEOUT);
    CHECK(LastErrorHas("did not answer within 2s"));
    // The engine makes no call: the daemon closes the sequences by itself.
    f.server.gate.Open();
    REQUIRE(Eventually([&] { return f.server.gate.num_left() == 1; }));
    REQUIRE(Eventually([&] { return f.IsFree("r") && f.IsFree("r#1"); }));
    // The next calls get their own answers. The name can be used again.
    specd_engine_stats stats = {};
    stats.struct_size = sizeof(stats);
    CHECK(specd_get_engine_stats(f.engine.get(), &stats) == SPECD_OK);
    CHECK(f.Open("r") == SPECD_OK);
    CHECK(specd_close_sequence(f.engine.get(), f.infos[0].sequence) == SPECD_OK);
    CHECK(f.IsFree("r"));
  }

  TEST_CASE("a retry of an opening that timed out found its own name in use") {
    LateEngine f;
    CHECK(f.Open("r") == SPECD_ERROR_TIMEOUT);
    // The second try times out in the socket. The third comes after the first was opened late.
    CHECK(f.Open("r") == SPECD_ERROR_TIMEOUT);
    f.server.gate.Open();
    CHECK(f.Open("r") == SPECD_OK);
    CHECK(!f.IsFree("r"));
    CHECK(specd_close_sequence(f.engine.get(), f.infos[0].sequence) == SPECD_OK);
    CHECK(f.IsFree("r"));
  }

  TEST_CASE("memory of a call that timed out is not kept by the daemon") {
    LateEngine f;
    CHECK(f.Open("r") == SPECD_ERROR_TIMEOUT);
    specd_region region;
    CHECK(specd_alloc(f.engine.get(), 4096, &region) == SPECD_ERROR_TIMEOUT);
    f.server.gate.Open();
    // There is room for 16 regions of a session: all of them, if none is left of the call.
    for (int i = 0; i < 16; ++i) {
      const int code = specd_alloc(f.engine.get(), 4096, &region);
      INFO(specd_last_error());
      CHECK(code == SPECD_OK);
    }
    CHECK(specd_alloc(f.engine.get(), 4096, &region) == SPECD_ERROR_EXHAUSTED);
  }

  TEST_CASE("an engine that closes while an answer is owed leaves nothing") {
    LateEngine f;
    CHECK(f.Open("r") == SPECD_ERROR_TIMEOUT);
    f.engine.reset();
    f.server.gate.Open();
    REQUIRE(Eventually([&] { return f.server.gate.num_left() == 1; }));
    CHECK(Eventually([&] { return f.IsFree("r"); }));
  }
}

}  // namespace
}  // namespace specd
