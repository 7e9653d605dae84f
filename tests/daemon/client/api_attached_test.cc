// Options that belong to the other mode are refused by name.
#include <doctest/doctest.h>

#include "tests/daemon/server/server_fixture.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EnginePtr;
using test::OpenEngine;
using test::ServerFixture;
using test::ServerOptions;

TEST_SUITE("unit") {
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
