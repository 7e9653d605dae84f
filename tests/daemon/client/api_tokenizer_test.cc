// The tokenizer and the EOS ids of an embedded engine, through the C interface.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/client/toy_engine.h"

namespace specd::test {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("without a tokenizer a constraint is refused with the remedy") {
    specd_options options = ToyOptions();
    options.tokenizer = nullptr;
    ToyEngine engine(options);
    specd_sequence sequence = 0;
    CHECK(engine.TryOpen(Constrained(SPECD_GRAMMAR_REGEX, "a"), &sequence) ==
          SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("tokenizer"));
  }

  TEST_CASE("the tokenizer and the EOS ids of an embedded engine are checked by name") {
    specd_engine* engine = nullptr;
    specd_options options = ToyOptions();
    options.tokenizer = "/nonexistent/tokenizer.json";
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_NOT_FOUND);
    CHECK(LastErrorHas("/nonexistent/tokenizer.json"));
    options = ToyOptions();
    options.vocab_size = kVocab - 1;
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_VOCABULARY);
    CHECK(LastErrorHas("2047"));
    const int32_t outside[] = {static_cast<int32_t>(kVocab)};
    options = ToyOptions();
    options.eos_token_ids = {outside, 1};
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_VOCABULARY);
    CHECK(LastErrorHas("EOS id 2048"));
    const int32_t negative[] = {-1};
    options.eos_token_ids = {negative, 1};
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("eos_token_ids"));
    options.eos_token_ids = {nullptr, 1};
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    options.eos_token_ids = {outside, 65};
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("eos_token_ids"));
    // A daemon has the EOS ids itself, and compares the tokenizer. A path that is wrong is said
    // before the socket is looked at.
    options = ToyOptions();
    options.threads = 0;
    options.tokenizer = "/nonexistent/tokenizer.json";
    CHECK(specd_open("unix:/nonexistent", &options, &engine) == SPECD_ERROR_NOT_FOUND);
    CHECK(LastErrorHas("/nonexistent/tokenizer.json"));
    options.tokenizer = nullptr;
    CHECK(specd_open("unix:/nonexistent", &options, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("--eos_token_ids"));
  }

  TEST_CASE("EOS ids of an embedded engine end sequences; ignore_eos needs one to ignore") {
    const std::vector<int32_t> none = {0};
    specd_options options = ToyOptions();
    options.tokenizer = nullptr;
    std::vector<int32_t> every(64);
    for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<int32_t>(i);
    options.eos_token_ids = {every.data(), every.size()};
    ToyEngine engine(options);
    specd_params params = Constrained(SPECD_GRAMMAR_NONE, nullptr);
    params.allowed_token_ids = {every.data(), every.size()};
    const ToyEngine::Output ended = engine.Run(params, 0, none);
    CHECK(ended.tokens.size() == 1);
    CHECK(ended.finish_reason == SPECD_FINISH_STOP);
    CHECK(ended.stop_token == ended.tokens[0]);
    params.ignore_eos = 1;
    CHECK(engine.Run(params, 0, none).finish_reason == SPECD_FINISH_LENGTH);

    options.eos_token_ids = {};
    ToyEngine unknowing(options);
    specd_sequence sequence = 0;
    CHECK(unknowing.TryOpen(params, &sequence) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("ignore_eos"));
  }
}

}  // namespace
}  // namespace specd::test
