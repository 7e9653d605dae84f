// Several sequences of one opening, and forks of a running sequence.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/support/c_drafts.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::TokensOf;

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
      CHECK(EmbeddedEngine::LastErrorHas(taken));
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
      CHECK(EmbeddedEngine::LastErrorHas("n = "));
    }
  }

  TEST_CASE("a fork has the state of its source and goes its own way") {
    EmbeddedEngine f;
    EmbeddedEngine::SetRow(f.target, 0, {2.0f, 1.5f, 1.0f});
    specd_params params = EmbeddedEngine::Params();
    params.presence_penalty = 2;
    const specd_sequence source = f.Open(params, "source");
    CHECK(TokensOf(f.Sample(source)) == std::vector<int32_t>{0});
    specd_sequence_info fork = Sized<specd_sequence_info>();
    REQUIRE(specd_fork(f.engine, source, "fork", nullptr, &fork) == SPECD_OK);
    CHECK(fork.sequence != source);
    CHECK(fork.verify == SPECD_VERIFY_GREEDY);
    // 0 is penalised in both.
    specd_result result = f.Sample(fork.sequence);
    CHECK(TokensOf(result) == std::vector<int32_t>{1});
    CHECK(result.total_kept == 2);
    // The fork's tokens do not count in the source.
    CHECK(TokensOf(f.Sample(source)) == std::vector<int32_t>{1});
    REQUIRE(specd_close_sequence(f.engine, source) == SPECD_OK);
    CHECK(TokensOf(f.Sample(fork.sequence)) == std::vector<int32_t>{2});
  }

  TEST_CASE("a fork with the seed of its source draws the same, with another one its own") {
    EmbeddedEngine f;
    EmbeddedEngine::SetRow(f.target, 0, {0, 0, 0, 0, 0, 0, 0, 0});
    const specd_sequence source = f.Open(EmbeddedEngine::Params(1.0), "source");
    (void)f.Sample(source);
    specd_sequence_info same = Sized<specd_sequence_info>();
    specd_sequence_info other = same;
    const uint64_t seed = 5;
    const uint64_t other_seed = 6;
    REQUIRE(specd_fork(f.engine, source, "same", &seed, &same) == SPECD_OK);
    REQUIRE(specd_fork(f.engine, source, "other", &other_seed, &other) == SPECD_OK);
    CHECK(same.seed == 5);
    CHECK(other.seed == 6);
    std::vector<int32_t> drawn[3];
    for (int round = 0; round < 20; ++round) {
      drawn[0].push_back(f.Sample(source).tokens[0]);
      drawn[1].push_back(f.Sample(same.sequence).tokens[0]);
      drawn[2].push_back(f.Sample(other.sequence).tokens[0]);
    }
    CHECK(drawn[0] == drawn[1]);
    CHECK(drawn[0] != drawn[2]);  // equal with probability 8^-20
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
