// specd_params_check against an embedded engine: the same parameters, code and text.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/server/server_fixture.h"

namespace specd {
namespace {

using Change = std::function<void(specd_params&)>;

specd_options SmallOptions() {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = 8;
  options.max_sequences = 64;
  return options;
}

TEST_SUITE("unit") {
  TEST_CASE("specd_params_check says what an engine says when it opens a sequence") {
    static const int32_t outside[] = {3, 8};
    static const int32_t inside[] = {3, 7};
    static const char* const stops[] = {"x"};
    const specd_options options = SmallOptions();
    const test::EnginePtr engine = test::OpenEngine("embedded:cpu", options);
    specd_sequence_info infos[64] = {};
    for (specd_sequence_info& info : infos) info.struct_size = sizeof(info);
    int num_accepted = 0;
    int num_refused = 0;
    for (const Change& change : {
             Change([](specd_params&) {}),
             Change([](specd_params& p) { p.temperature = -1; }),
             Change([](specd_params& p) { p.n = 64; }),
             Change([](specd_params& p) { p.n = 65; }),
             Change([](specd_params& p) { p.has_seed = 2; }),
             Change([](specd_params& p) { p.ignore_eos = 1; }),
             Change([](specd_params& p) { p.logprobs = 20; }),
             Change([](specd_params& p) { p.logprobs = 21; }),  // 22 scores, and 21 have room
             Change([](specd_params& p) {
               p.allowed_token_ids = {inside, 2};
             }),
             Change([](specd_params& p) {
               p.allowed_token_ids = {outside, 2};
             }),
             Change([](specd_params& p) {
               p.prompt_ids = {outside, 2};
             }),
             Change([](specd_params& p) {
               p.allowed_token_ids = {nullptr, 2};
             }),
             Change([](specd_params& p) {
               p.stop_strings = {stops, 1};
             }),
             Change([](specd_params& p) { p.thinking_preset = "none"; }),
             Change([](specd_params& p) {
               p.output_ids = {inside, 2};
               p.max_tokens = 2;
             }),
             Change([](specd_params& p) {
               p.grammar_kind = SPECD_GRAMMAR_REGEX;
               p.grammar = "a";
               p.grammar_bytes = 1;
             }),
             Change([](specd_params& p) { p.struct_size = 3; }),
         }) {
      specd_params params;
      specd_params_init(&params);
      change(params);
      const int opened = specd_open_sequence(engine.get(), "r", &params, infos);
      const std::string why = specd_last_error();
      CAPTURE(why);
      CHECK(specd_params_check(&params, &options) == opened);
      if (opened == SPECD_OK) {
        ++num_accepted;
        const uint32_t n = params.n;
        for (uint32_t i = 0; i < n; ++i) {
          REQUIRE(specd_close_sequence(engine.get(), infos[i].sequence) == SPECD_OK);
        }
      } else {
        ++num_refused;
        CHECK(specd_last_error() == why);
      }
    }
    CHECK(num_accepted == 4);
    CHECK(num_refused == 13);
  }

  TEST_CASE("specd_params_check reads the model of the options") {
    static const int32_t eos[] = {7};
    specd_options options = SmallOptions();
    options.eos_token_ids = {eos, 1};
    specd_params params;
    specd_params_init(&params);
    params.ignore_eos = 1;
    CHECK(specd_params_check(&params, &options) == SPECD_OK);
    options.vocab_size = 7;
    CHECK(specd_params_check(&params, &options) == SPECD_ERROR_VOCABULARY);
    options.vocab_size = 0;
    CHECK(specd_params_check(&params, &options) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(std::string(specd_last_error()).find("vocab_size") != std::string::npos);
    CHECK(specd_params_check(nullptr, &options) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_params_check(&params, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
  }

  TEST_CASE("specd_params_check compiles a constraint") {
    specd_options options = SmallOptions();
    options.vocab_size = 65536;  // more than the tokenizer has
    options.tokenizer = SPECD_TOKENIZER;
    specd_params params;
    specd_params_init(&params);
    params.grammar_kind = SPECD_GRAMMAR_REGEX;
    params.grammar = "a|b";
    params.grammar_bytes = 3;
    CHECK(specd_params_check(&params, &options) == SPECD_OK);
    params.grammar = "a|(";
    CHECK(specd_params_check(&params, &options) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(std::string(specd_last_error()).find("grammar") != std::string::npos);
  }
}

}  // namespace
}  // namespace specd
