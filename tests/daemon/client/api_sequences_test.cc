// Several sequences of one opening, and forks of a running sequence.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;

TEST_SUITE("unit") {
  TEST_CASE("n sequences have n handles, seeds in a row and names of their own") {
    EmbeddedEngine f;
    specd_params params = EmbeddedEngine::Params(1.0);
    params.n = 3;
    params.seed = ~uint64_t{0};
    std::vector<specd_sequence_info> infos(3, Sized<specd_sequence_info>());
    REQUIRE(specd_open_sequence(f.engine, "r", &params, infos.data()) == SPECD_OK);
    CHECK(infos[0].sequence != infos[1].sequence);
    CHECK(infos[1].sequence != infos[2].sequence);
    CHECK(infos[0].seed == ~uint64_t{0});
    CHECK(infos[1].seed == 0);  // modulo 2^64
    CHECK(infos[2].seed == 1);
    // Their names are taken, and given back one by one.
    params.n = 1;
    specd_sequence_info info = Sized<specd_sequence_info>();
    for (const char* taken : {"r", "r#1", "r#2"}) {
      CHECK(specd_open_sequence(f.engine, taken, &params, &info) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas(taken));
    }
    CHECK(specd_open_sequence(f.engine, "r#3", &params, &info) == SPECD_OK);
    REQUIRE(specd_close_sequence(f.engine, infos[1].sequence) == SPECD_OK);
    CHECK(specd_open_sequence(f.engine, "r#1", &params, &info) == SPECD_OK);
  }

  TEST_CASE("n sequences without a seed share one that was drawn") {
    EmbeddedEngine f;
    specd_params params = EmbeddedEngine::Params(1.0);
    params.has_seed = 0;
    params.n = 2;
    std::vector<specd_sequence_info> infos(2, Sized<specd_sequence_info>());
    REQUIRE(specd_open_sequence(f.engine, "r", &params, infos.data()) == SPECD_OK);
    CHECK(infos[1].seed == infos[0].seed + 1);
  }

  TEST_CASE("n sequences or none: slots and names of a refused opening are free again") {
    EmbeddedEngine f;  // room for 4
    specd_params params = EmbeddedEngine::Params(1.0);
    std::vector<specd_sequence_info> infos(64, Sized<specd_sequence_info>());
    const specd_sequence one = f.Open(params, "one");
    params.n = 4;
    CHECK(specd_open_sequence(f.engine, "r", &params, infos.data()) == SPECD_ERROR_EXHAUSTED);
    params.n = 3;
    REQUIRE(specd_open_sequence(f.engine, "r", &params, infos.data()) == SPECD_OK);
    for (int i = 0; i < 3; ++i) REQUIRE(specd_close_sequence(f.engine, infos[i].sequence) == 0);
    // The third name is in use: the first two are not kept.
    params.n = 1;
    specd_sequence_info info = Sized<specd_sequence_info>();
    REQUIRE(specd_open_sequence(f.engine, "r#2", &params, &info) == SPECD_OK);
    params.n = 3;
    CHECK(specd_open_sequence(f.engine, "r", &params, infos.data()) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    REQUIRE(specd_close_sequence(f.engine, info.sequence) == SPECD_OK);
    CHECK(specd_open_sequence(f.engine, "r", &params, infos.data()) == SPECD_OK);
    CHECK(one != infos[0].sequence);
    // A name that is too long only with its number.
    for (int i = 0; i < 3; ++i) REQUIRE(specd_close_sequence(f.engine, infos[i].sequence) == 0);
    const std::string long_name(127, 'x');
    CHECK(specd_open_sequence(f.engine, long_name.c_str(), &params, infos.data()) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    for (const uint32_t n : {0u, 65u, UINT32_MAX}) {
      params.n = n;
      CHECK(specd_open_sequence(f.engine, "r", &params, infos.data()) ==
            SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("n = "));
    }
  }

  TEST_CASE("what cannot be forked is refused by name, and its name stays free") {
    EmbeddedEngine f;
    const specd_sequence source = f.Open(EmbeddedEngine::Params(), "source");
    specd_sequence_info info = Sized<specd_sequence_info>();
    CHECK(specd_fork(f.engine, source + 1, "fork", nullptr, &info) == SPECD_ERROR_NOT_FOUND);
    CHECK(specd_fork(f.engine, source, "source", nullptr, &info) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_fork(f.engine, source, "", nullptr, &info) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_fork(f.engine, source, nullptr, nullptr, &info) == SPECD_ERROR_INVALID_ARGUMENT);
    REQUIRE(specd_abort(f.engine, source) == SPECD_OK);
    CHECK(specd_fork(f.engine, source, "fork", nullptr, &info) == SPECD_ERROR_STATE);
    f.Open(EmbeddedEngine::Params(), "fork");
  }
}

}  // namespace
}  // namespace specd
