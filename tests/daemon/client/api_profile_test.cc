// The model profile of an embedded engine, through the C interface.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "ipc/include/specd/specd.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

class ProfileFile {
 public:
  explicit ProfileFile(const std::string& json) { std::ofstream(path_) << json; }
  ~ProfileFile() { std::remove(path_.c_str()); }
  const char* path() const { return path_.c_str(); }

 private:
  const std::string path_ =
      std::filesystem::temp_directory_path() /
      ("specd_api_profile_test." + std::to_string(::getpid()) + "." + std::to_string(++number_));
  static inline int number_ = 0;
};

constexpr uint32_t kVocab = 8;

specd_options Options(const char* profile_file) {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = kVocab;
  options.threads = 1;
  options.profile_file = profile_file;
  return options;
}

int TryOpen(const specd_options& options, const char* uri = "embedded:cpu") {
  specd_engine* engine = nullptr;
  const int code = specd_open(uri, &options, &engine);
  specd_close(engine);
  return code;
}

// The result of one greedy round over the row 0, 1, .. 7.
specd_result RunOne(const specd_options& options, float scale) {
  specd_engine* engine = nullptr;
  REQUIRE_MESSAGE(specd_open("embedded:cpu", &options, &engine) == SPECD_OK,
                  std::string(specd_last_error()));
  specd_region region;
  REQUIRE(specd_alloc(engine, kVocab * sizeof(float), &region) == SPECD_OK);
  for (uint32_t i = 0; i < kVocab; ++i) static_cast<float*>(region.data)[i] = static_cast<float>(i);
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = 1;
  tensor.scale = scale;
  REQUIRE(specd_bind(engine, SPECD_TARGET_ROWS, &tensor) == SPECD_OK);
  specd_params params;
  specd_params_init(&params);
  params.temperature = 0;
  params.logprobs = 0;
  specd_sequence_info info = Sized<specd_sequence_info>();
  REQUIRE(specd_open_sequence(engine, "r", &params, &info) == SPECD_OK);
  const uint32_t row = 0;
  const specd_draft draft = ChainDraft(info.sequence, 0, nullptr, &row);
  REQUIRE(specd_submit(engine, 1, &draft, 1) == SPECD_OK);
  specd_completion done = SizedCompletion();
  REQUIRE(specd_poll(engine, &done, 10000) == SPECD_OK);
  specd_result result = done.results[0];
  specd_close(engine);
  return result;
}

TEST_SUITE("unit") {
  TEST_CASE("embedded profile: the facts of the file are those of the engine") {
    const ProfileFile file(R"({"eos_token_ids": [7], "scale": 0.5})");
    const specd_result result = RunOne(Options(file.path()), 1);
    CHECK(result.finish_reason == SPECD_FINISH_STOP);
    CHECK(result.stop_token == 7);
    // The logarithm of the sum of exp(-k / 2) for k = 0 .. 7.
    double sum = 0;
    for (uint32_t i = 0; i < kVocab; ++i) sum += std::exp(-0.5 * i);
    CHECK(result.cumulative_logprob == doctest::Approx(-std::log(sum)));
    // A binding that names a scale keeps it.
    sum = 0;
    for (uint32_t i = 0; i < kVocab; ++i) sum += std::exp(-2.0 * i);
    CHECK(RunOne(Options(file.path()), 2).cumulative_logprob == doctest::Approx(-std::log(sum)));
  }

  TEST_CASE("embedded profile: file and fields together, but no fact twice") {
    const ProfileFile file(R"({"eos_token_ids": [7]})");
    specd_options options = Options(file.path());
    options.tokenizer = SPECD_TOKENIZER;
    options.vocab_size = 2048;
    CHECK(TryOpen(options) == SPECD_OK);
    const int32_t eos = 3;
    options.eos_token_ids = {&eos, 1};
    CHECK(TryOpen(options) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("eos_token_ids is given here and in the profile_file"));
  }

  TEST_CASE("embedded profile: what is wrong is named") {
    CHECK(TryOpen(Options("/nonexistent/p.json")) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("/nonexistent/p.json"));
    const ProfileFile file(R"({"vocab_size": 9, "eos": 1})");
    CHECK(TryOpen(Options(file.path())) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("#/eos"));
    const ProfileFile wide(R"({"vocab_size": 9})");
    CHECK(TryOpen(Options(wide.path())) == SPECD_ERROR_VOCABULARY);
    const ProfileFile markers(R"({"thinking_start_id": 1, "thinking_end_ids": [8]})");
    CHECK(TryOpen(Options(markers.path())) == SPECD_ERROR_VOCABULARY);
    CHECK(LastErrorHas("thinking id 8"));
    const ProfileFile half(R"({"thinking_start_id": 1})");
    CHECK(TryOpen(Options(half.path())) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("thinking_end_ids"));
    const ProfileFile parser(R"({"tokenizer": ")" SPECD_TOKENIZER
                             R"(", "reasoning_parser": "mistral"})");
    CHECK(TryOpen(Options(parser.path())) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("[/THINK], which is not among the added_tokens"));
    CHECK(LastErrorHas("reasoning_end"));
  }

  // An embedded engine took EOS tokens by number only.
  TEST_CASE("an embedded engine's EOS tokens by text and by number") {
    const ProfileFile tokenizer(
        R"({"version": "1.0", "added_tokens": [{"id": 7, "content": "<|end|>", "special": true},
                                                     {"id": 5, "content": "<|turn|>", "special": true}],
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}, "merges": []},
        "decoder": {"type": "ByteLevel"}})");
    specd_options options = Options(nullptr);
    const char* const end[] = {"<|end|>"};
    options.eos_tokens = {end, 1};
    CHECK(TryOpen(options) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("eos_tokens = <|end|> needs a tokenizer"));
    options.tokenizer = tokenizer.path();
    const specd_result by_text = RunOne(options, 1);  // the argmax is 7
    CHECK(by_text.finish_reason == SPECD_FINISH_STOP);
    CHECK(by_text.stop_token == 7);
    const int32_t turn[] = {5};
    options.eos_token_ids = {turn, 1};
    CHECK(RunOne(options, 1).stop_token == 7);  // the two lists add up
    options.eos_tokens = {};
    CHECK(RunOne(options, 1).finish_reason == SPECD_FINISH_NONE);
    const int32_t number[] = {7};
    options.eos_token_ids = {number, 1};
    options.tokenizer = nullptr;  // by number none is needed
    CHECK(RunOne(options, 1).stop_token == 7);
    const char* const unknown[] = {"<|endd|>"};
    options.tokenizer = tokenizer.path();
    options.eos_tokens = {unknown, 1};
    CHECK(TryOpen(options) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("<|endd|> is not among the added_tokens"));
    options.eos_tokens = {nullptr, 1};
    CHECK(TryOpen(options) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("eos_tokens.count = 1"));
    specd_options attached = Options(nullptr);
    attached.threads = 0;  // a daemon has its own
    attached.eos_tokens = {end, 1};
    CHECK(TryOpen(attached, "unix:/nowhere/s") == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("--eos_tokens"));
  }

  TEST_CASE("embedded profile: each mode names its model in its own way") {
    specd_options options = Options(nullptr);
    options.profile = "qwen3";
    CHECK(TryOpen(options) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("profile_file"));
    options = Options("p.json");
    options.threads = 0;
    CHECK(TryOpen(options, "unix:/nonexistent/s") == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("--profile=NAME=p.json"));
  }
}

}  // namespace
}  // namespace specd
