// Openings of many sequences in one call: what specd_open_sequence opens one by one, or nothing and
// the index of the opening that was refused. Embedded and attached.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::ForBothModes;
using test::TokensOf;

// Openings "0", "1", ... with these parameters, and room for their sequences.
struct Call {
  explicit Call(std::vector<specd_params> asked) : params(std::move(asked)) {
    for (size_t i = 0; i < params.size(); ++i) texts.push_back(std::to_string(i));
    for (const std::string& text : texts) names.push_back(text.c_str());
    infos.assign(64, Sized<specd_sequence_info>());
    specd_openings_init(&openings);
    openings.num_openings = static_cast<uint32_t>(params.size());
    openings.request_ids = names.data();
    openings.params = params.data();
    openings.infos = infos.data();
    openings.max_infos = static_cast<uint32_t>(infos.size());
  }

  int Open(EmbeddedEngine& f) { return specd_open_sequences(f.engine, &openings); }

  std::vector<specd_params> params;
  std::vector<std::string> texts;
  std::vector<const char*> names;
  std::vector<specd_sequence_info> infos;
  specd_openings openings;
};

// Four parameters that differ, with lists that travel beside the message and lists that do not.
struct Asked {
  Asked() {
    for (uint64_t i = 0; i < 4; ++i) {
      specd_params each = EmbeddedEngine::Params(0.5 + 0.25 * static_cast<double>(i));
      each.seed = 900 + i;
      params.push_back(each);
    }
    params[0].temperature = 0;
    params[1].prompt_ids = {prompt, 3};
    params[1].repetition_penalty = 1.9;
    params[2].disallowed_token_ids = {banned, 2};
    params[2].logit_bias_ids = {biased, 1};
    params[2].logit_bias = {biases, 1};
    params[3].output_ids = {prompt, 2};
    params[3].frequency_penalty = 1.5;
    params[3].stop_token_ids = {banned, 1};
  }

  const int32_t prompt[3] = {6, 3, 6};
  const int32_t banned[2] = {6, 3};
  const int32_t biased[1] = {1};
  const float biases[1] = {0.75f};
  std::vector<specd_params> params;
};

// The kept tokens of every sequence over some rounds of plain sampling, and how they ended.
std::vector<std::vector<int32_t>> Play(EmbeddedEngine& f,
                                       const std::vector<specd_sequence>& sequences) {
  std::vector<std::vector<int32_t>> kept(sequences.size());
  for (uint32_t round = 0; round < 12; ++round) {
    const float x = 0.3f * static_cast<float>(round % 5);
    EmbeddedEngine::SetRow(f.target, 0, {x, 0.2f, -x, 1.0f, 0.5f, 0.1f, 2 * x, -1.0f});
    for (size_t i = 0; i < sequences.size(); ++i) {
      const specd_result result = f.Sample(sequences[i]);
      for (const int32_t token : TokensOf(result)) kept[i].push_back(token);
      kept[i].push_back(-100 - static_cast<int32_t>(result.finish_reason));
      kept[i].push_back(static_cast<int32_t>(result.total_kept));
    }
  }
  return kept;
}

TEST_SUITE("unit") {
  TEST_CASE("openings: one call opens what single calls open") {
    const Asked asked;
    EmbeddedEngine single;
    std::vector<specd_sequence> opened;
    for (size_t i = 0; i < 4; ++i) {
      opened.push_back(single.Open(asked.params[i], std::to_string(i)));
    }
    const std::vector<std::vector<int32_t>> wanted = Play(single, opened);
    CHECK(wanted[0] != wanted[1]);
    ForBothModes([&](EmbeddedEngine& f) {
      Call call(asked.params);
      const int code = call.Open(f);
      INFO(specd_last_error());
      REQUIRE(code == SPECD_OK);
      CHECK(call.openings.refused == SPECD_NO_OPENING);
      std::vector<specd_sequence> sequences;
      for (uint32_t i = 0; i < 4; ++i) {
        CHECK(call.infos[i].seed == 900 + i);
        CHECK(call.infos[i].verify == (i == 0 ? SPECD_VERIFY_GREEDY : SPECD_VERIFY_AUTO));
        sequences.push_back(call.infos[i].sequence);
      }
      CHECK(Play(f, sequences) == wanted);
      // The names are those that were given.
      specd_sequence_info info = Sized<specd_sequence_info>();
      REQUIRE(specd_close_sequence(f.engine, sequences[3]) == SPECD_OK);
      CHECK(specd_open_sequence(f.engine, "2", &asked.params[0], &info) ==
            SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(specd_open_sequence(f.engine, "3", &asked.params[0], &info) == SPECD_OK);
    });
  }

  TEST_CASE("openings: several sequences of an opening stand one after another") {
    ForBothModes([](EmbeddedEngine& f) {
      Call call(std::vector<specd_params>(2, EmbeddedEngine::Params(1.0)));
      call.params[0].n = 3;
      call.params[1].seed = 40;
      call.openings.max_infos = 3;
      CHECK(call.Open(f) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("max_infos = 3 is less than 4"));
      call.openings.max_infos = 4;
      REQUIRE(call.Open(f) == SPECD_OK);
      for (uint32_t i = 0; i < 3; ++i) CHECK(call.infos[i].seed == 5 + i);
      CHECK(call.infos[3].seed == 40);
      CHECK(call.infos[3].sequence != call.infos[0].sequence);
      CHECK(call.infos[4].sequence == 0);
    });
  }

  TEST_CASE("openings: a refused one is named by its index, and nothing is opened") {
    ForBothModes([](EmbeddedEngine& f) {
      Call call(std::vector<specd_params>(4, EmbeddedEngine::Params(1.0)));
      const auto refused = [&](auto change) {
        Call broken = Call(call.params);
        change(&broken);
        const int code = broken.Open(f);
        return std::to_string(broken.openings.refused) + " " + std::to_string(code) + " " +
               (code < 0 ? specd_last_error() : "");
      };
      CHECK(refused([](Call* c) {
              c->params[2].temperature = -1;
            }).starts_with("2 -1 openings[2]: temperature"));
      const int32_t outside[] = {3, 8};
      CHECK(refused([&](Call* c) {
              c->params[3].prompt_ids = {outside, 2};
            }).starts_with("3 -1 openings[3]: prompt[1] = 8"));
      CHECK(refused([](Call* c) {
              c->params[1].prompt_ids = {nullptr, 2};
            }).starts_with("1 -1 openings[1]: prompt_ids.items is NULL"));
      CHECK(refused([](Call* c) {
              c->params[0].has_seed = 2;
            }).starts_with("0 -1 openings[0]: has_seed = 2"));
      CHECK(refused([](Call* c) { c->params[0].n = 0; }).starts_with("0 -1 openings[0]: n = 0"));
      CHECK(refused([](Call* c) {
              c->names[1] = nullptr;
            }).starts_with("1 -1 openings[1]: request_id is NULL"));
      CHECK(refused([](Call* c) { c->names[1] = ""; }).starts_with("1 -1 openings[1]: request_id"));
      CHECK(refused([](Call* c) {
              c->names[3] = c->names[1];
            }).starts_with("3 -1 openings[3]: request_id = \"1\" is the name of"));
      const std::string none = std::to_string(SPECD_NO_OPENING);
      CHECK(refused([](Call* c) {
              c->openings.num_openings = 0;
            }).starts_with(none + " -1 num_openings = 0 is outside 1 .. 1024"));
      CHECK(refused([](Call* c) {
              c->openings.num_openings = 1025;
            }).starts_with(none + " -1 num_openings = 1025"));
      CHECK(refused([](Call* c) {
              c->openings.request_ids = nullptr;
            }).starts_with(none + " -1 request_ids is NULL"));
      CHECK(refused([](Call* c) {
              c->openings.params = nullptr;
            }).starts_with(none + " -1 params is NULL"));
      CHECK(refused([](Call* c) {
              c->openings.infos = nullptr;
            }).starts_with(none + " -1 infos is NULL"));
      CHECK(refused([](Call* c) {
              c->params[1].struct_size -= 8;
            }).starts_with(none + " -1 params[1].struct_size"));
      CHECK(refused([](Call* c) {
              c->infos[2].struct_size = 8;
            }).starts_with(none + " -1 infos[2].struct_size = 8"));
      CHECK(specd_open_sequences(nullptr, &call.openings) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(specd_open_sequences(f.engine, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
      // A session of four has no room for a fifth, and slots and names are all free.
      const specd_sequence other = f.Open(EmbeddedEngine::Params(), "other");
      CHECK(call.Open(f) == SPECD_ERROR_EXHAUSTED);
      CHECK(call.openings.refused == SPECD_NO_OPENING);
      REQUIRE(specd_close_sequence(f.engine, other) == SPECD_OK);
      CHECK(call.Open(f) == SPECD_OK);
    });
  }

  TEST_CASE("openings: more sequences than a call may have, or more bytes, are refused") {
    ForBothModes([](EmbeddedEngine& f) {
      Call many(std::vector<specd_params>(17, EmbeddedEngine::Params(1.0)));
      for (specd_params& each : many.params) each.n = 64;
      many.infos.assign(17 * 64, Sized<specd_sequence_info>());
      many.openings.infos = many.infos.data();
      many.openings.max_infos = 17 * 64;
      CHECK(many.Open(f) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(many.openings.refused == 16);
      CHECK(LastErrorHas("openings[16]: the openings up to this one have 1088"));
      // Each list is as long as one may be; eight of them are 2^25 bytes, and the messages come
      // beside them.
      const std::vector<int32_t> prompt(1 << 20, 3);
      Call large(std::vector<specd_params>(8, EmbeddedEngine::Params()));
      for (specd_params& each : large.params) each.prompt_ids = {prompt.data(), prompt.size()};
      CHECK(large.Open(f) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(large.openings.refused == 7);
      CHECK(LastErrorHas("at most 33554432 are allowed in one call"));
    });
  }
}

}  // namespace
}  // namespace specd
