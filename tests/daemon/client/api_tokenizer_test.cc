// The tokenizer and the EOS ids of an embedded engine, through the C interface.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/client/toy_engine.h"
#include "tests/support/last_error.h"

namespace specd::test {
namespace {

TEST_SUITE("unit") {
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

  // Gemma 3 1B has such an id, and was refused.
  TEST_CASE("ids past the columns are a warning of the opened engine, until the first opening") {
    const std::string path =
        std::filesystem::temp_directory_path() / ("past_the_columns_" + std::to_string(getpid()));
    std::ofstream(path) << R"({"version": "1.0", "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}},
        "added_tokens": [{"id": 2048, "content": "<image>", "special": true}]})";
    specd_options options = ToyOptions();
    options.tokenizer = path.c_str();
    {
      ToyEngine engine(options);
      const std::string warnings = engine.Warnings();
      CAPTURE(warnings);
      CHECK(warnings.find("2048 \"<image>\"") != std::string::npos);
      specd_sequence sequence = 0;
      REQUIRE(engine.TryOpen(Constrained(SPECD_GRAMMAR_NONE, nullptr), &sequence) == SPECD_OK);
      CHECK(engine.Warnings().empty());
    }
    options.vocab_size = kVocab + 1;
    specd_engine* wide = nullptr;
    REQUIRE(specd_open("embedded:cpu", &options, &wide) == SPECD_OK);
    CHECK(std::string(specd_opening_warnings(wide)).empty());
    specd_close(wide);
    std::filesystem::remove(path);
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
