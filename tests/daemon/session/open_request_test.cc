// The way from specd_params through the message and its file to SequenceParams. Every field
// arrives, and errors in the form of a message are refused by name.
#include "daemon/session/open_request.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "daemon/client/open_message.h"
#include "ipc/base/error.h"
#include "speculative/params/param_table.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

specd_ids View(const Ids& ids) { return {ids.data(), ids.size()}; }

absl::StatusOr<OpenRequest> Read(const specd_params& params) {
  absl::StatusOr<OpenMessage> message = MakeOpenMessage("r", params);
  if (!message.ok()) return message.status();
  return ReadOpenRequest(message->request, message->lists);
}

specd_params Defaults() {
  specd_params params;
  std::memset(static_cast<void*>(&params), 0xff, sizeof(params));  // init writes every field
  specd_params_init(&params);
  return params;
}

std::string FieldOf(const specd_params& params) { return ErrorFieldOf(Read(params).status()); }

// A file of this many ids, the first 0.
UniqueFd MakeFile(size_t num_ids) {
  UniqueFd fd(memfd_create("ids", MFD_CLOEXEC));
  Ids ids(num_ids);
  std::iota(ids.begin(), ids.end(), 0);
  const size_t size_bytes = num_ids * sizeof(TokenId);
  REQUIRE(write(fd.get(), ids.data(), size_bytes) == static_cast<ssize_t>(size_bytes));
  return fd;
}

TEST_SUITE("unit") {
  TEST_CASE("opening: the defaults of specd_params are those of SequenceParams") {
    const absl::StatusOr<OpenRequest> open = Read(Defaults());
    REQUIRE(open.ok());
    for (const ParamRow& row : ParamTable()) {
      CAPTURE(row.field);
      CHECK(ValueText(row, open->params) == ValueText(row, SequenceParams{}));
    }
    CHECK(open->prompt.empty());
    CHECK(open->outputs.empty());
  }

  TEST_CASE("opening: every number arrives in its own place") {
    specd_params params = Defaults();
    params.verify = SPECD_VERIFY_BLOCK;
    params.n = 3;
    params.has_seed = 1;
    params.seed = 1234567890123;
    params.temperature = 0.7;
    params.top_p = 0.9;
    params.min_p = 0.05;
    params.top_k = 40;
    params.filter_order = SPECD_FILTERS_JOINT;
    params.frequency_penalty = 0.1;
    params.presence_penalty = 0.2;
    params.repetition_penalty = 1.3;
    params.no_repeat_ngram_size = 4;
    params.no_repeat_ngram_window = 64;
    params.max_tokens = 77;
    params.min_tokens = 7;
    params.ignore_eos = 1;
    params.logprobs = 5;
    params.logprobs_mode = SPECD_PROCESSED_LOGIT;
    params.draft_temperature = 0.6;
    params.draft_top_p = 0.8;
    params.draft_min_p = 0.01;
    params.draft_top_k = 20;
    params.draft_filter_order = SPECD_FILTERS_JOINT;
    params.draft_edits = 1;
    params.include_stop = 1;
    params.skip_special_tokens = 0;
    const absl::StatusOr<OpenRequest> open = Read(params);
    REQUIRE(open.ok());
    const SequenceParams& read = open->params;
    CHECK(read.verify == VerifyMethod::kBlock);
    CHECK(read.n == 3);
    CHECK(read.has_seed);
    CHECK(read.seed == 1234567890123);
    CHECK(read.temperature == 0.7);
    CHECK(read.top_p == 0.9);
    CHECK(read.min_p == 0.05);
    CHECK(read.top_k == 40);
    CHECK(read.filter_order == FilterOrder::kJoint);
    CHECK(read.frequency_penalty == 0.1);
    CHECK(read.presence_penalty == 0.2);
    CHECK(read.repetition_penalty == 1.3);
    CHECK(read.no_repeat_ngram_size == 4);
    CHECK(read.no_repeat_ngram_window == 64);
    CHECK(read.max_tokens == 77);
    CHECK(read.min_tokens == 7);
    CHECK(read.ignore_eos);
    CHECK(read.logprobs == 5);
    CHECK(read.logprobs_mode == ScoreMode::kProcessedLogit);
    CHECK(read.draft.temperature == 0.6);
    CHECK(read.draft.top_p == 0.8);
    CHECK(read.draft.min_p == 0.01);
    CHECK(read.draft.top_k == 20);
    CHECK(read.draft.filter_order == FilterOrder::kJoint);
    CHECK(read.draft.edits);
    CHECK(read.include_stop);
    CHECK_FALSE(read.skip_special_tokens);
  }

  TEST_CASE("opening: every list arrives in its own place, whole and in order") {
    const Ids bias = {1, 2};
    const float biases[] = {0.5f, -100.0f};
    const Ids allowed = {3, 4, 5};
    const Ids disallowed = {6};
    const Ids bad = {7, 8, 9};
    const Ids lengths = {1, 2};
    const Ids whitelist = {10, 11};
    const Ids ends = {12, 13};
    const Ids stops = {14};
    const Ids scored = {15, 16};
    const Ids outputs = {17, 18, 19};
    Ids prompt(131072);  // a long context: far more ids than a message holds
    std::iota(prompt.begin(), prompt.end(), 100000);
    const char* strings[] = {"x", "\xc3\xa4"};
    const specd_processor processors[] = {{"first", nullptr}, {"second", "a=1, b=-2.5e1"}};
    specd_params params = Defaults();
    params.logit_bias_ids = View(bias);
    params.logit_bias = {biases, 2};
    params.allowed_token_ids = View(allowed);
    params.disallowed_token_ids = View(disallowed);
    params.bad_word_ids = View(bad);
    params.bad_word_lengths = View(lengths);
    params.no_repeat_ngram_whitelist = View(whitelist);
    params.thinking_budget = 9;
    params.thinking_start_id = 20;
    params.thinking_newline_id = 21;
    params.thinking_end_ids = View(ends);
    params.stop_token_ids = View(stops);
    params.logprob_token_ids = View(scored);
    const float rates[] = {0.5f, 0.25f};
    params.synthetic_rates = {rates, 2};
    params.prompt_ids = View(prompt);
    params.output_ids = View(outputs);
    params.stop_strings = {strings, 2};
    params.processors = processors;
    params.num_processors = 2;
    const absl::StatusOr<OpenRequest> open = Read(params);
    REQUIRE(open.ok());
    const SequenceParams& read = open->params;
    REQUIRE(read.logit_bias.size() == 2);
    CHECK(read.logit_bias[1].id == 2);
    CHECK(read.logit_bias[1].bias == -100.0f);
    CHECK(read.allowed_token_ids == allowed);
    CHECK(read.disallowed_token_ids == disallowed);
    CHECK(read.bad_words == std::vector<Ids>{{7}, {8, 9}});
    CHECK(read.no_repeat_ngram_whitelist == whitelist);
    CHECK(read.thinking.budget == 9);
    CHECK(read.thinking.start_id == 20);
    CHECK(read.thinking.newline_id == 21);
    CHECK(read.thinking.end_ids == ends);
    CHECK(read.stop_token_ids == stops);
    CHECK(read.stop_strings == std::vector<std::string>{"x", "\xc3\xa4"});
    CHECK(read.logprob_token_ids == scored);
    CHECK(read.synthetic_rates == std::vector<double>{0.5, 0.25});
    CHECK(open->prompt == prompt);
    CHECK(open->outputs == outputs);
    REQUIRE(read.processors.size() == 2);
    CHECK(read.processors[0].values.empty());
    CHECK(read.processors[1].name == "second");
    CHECK(read.processors[1].values ==
          std::vector<std::pair<std::string, double>>{{"a", 1.0}, {"b", -25.0}});
  }

  TEST_CASE("opening: a preset stands for the ids of its model, and not beside others") {
    specd_params params = Defaults();
    params.thinking_budget = 5;
    params.thinking_preset = "qwen3";
    const absl::StatusOr<OpenRequest> open = Read(params);
    REQUIRE(open.ok());
    // CONTRACT §3, step 6: Qwen3 is 151667/151668/198.
    CHECK(open->params.thinking.start_id == 151667);
    CHECK(open->params.thinking.end_ids == Ids{151668});
    CHECK(open->params.thinking.newline_id == 198);
    CHECK(open->params.thinking.budget == 5);
    params.thinking_newline_id = 7;
    CHECK(FieldOf(params) == "thinking_preset");
    params.thinking_newline_id = -1;
    params.thinking_preset = "qwen4";
    CHECK(FieldOf(params) == "thinking_preset");
  }

  TEST_CASE("opening: lists that do not fit each other are refused by name") {
    const Ids ids = {1, 2, 3};
    const float biases[] = {1, 2};
    specd_params params = Defaults();
    params.logit_bias_ids = View(ids);
    params.logit_bias = {biases, 2};
    CHECK(FieldOf(params) == "logit_bias");
    for (const Ids& lengths : {Ids{}, Ids{2}, Ids{2, 2}, Ids{0, 3}, Ids{-1}, Ids{INT32_MAX}}) {
      params = Defaults();
      params.bad_word_ids = View(ids);
      params.bad_word_lengths = View(lengths);
      CHECK(FieldOf(params) == "bad_word_lengths");
    }
    for (const char* values : {"a", "a=", "=1", "a=1;b=2", "a=x", "a=1=2"}) {
      const specd_processor processor = {"p", values};
      params = Defaults();
      params.processors = &processor;
      params.num_processors = 1;
      CAPTURE(values);
      CHECK(FieldOf(params) == "processors");
    }
  }

  TEST_CASE("opening: a number may be given by its name instead of in its field") {
    const specd_number numbers[] = {
        {"top_p", 0.9}, {"verify", 4}, {"thinking_budget", 5}, {"ignore_eos", 1}, {"n", 3}};
    specd_params params = Defaults();
    params.numbers = {numbers, 5};
    params.thinking_preset = "qwen3";
    params.min_p = 0.05;
    const absl::StatusOr<OpenMessage> message = MakeOpenMessage("r", params);
    REQUIRE(message.ok());
    CHECK(message->num_sequences == 3);
    const absl::StatusOr<OpenRequest> open = Read(params);
    REQUIRE(open.ok());
    CHECK(open->params.top_p == 0.9);
    CHECK(open->params.min_p == 0.05);
    CHECK(open->params.verify == VerifyMethod::kBlock);
    CHECK(open->params.thinking.budget == 5);
    CHECK(open->params.thinking.start_id == 151667);
    CHECK(open->params.ignore_eos);
    CHECK(open->params.n == 3);
    CHECK(open->params.temperature == 1);
  }

  TEST_CASE("opening: a number that is unknown, given twice or of no use is refused by its name") {
    const auto refused = [](const char* name, double value, double top_p) {
      const specd_number numbers[] = {{"min_p", 0.1}, {name, value}};
      specd_params params = Defaults();
      params.top_p = top_p;
      params.numbers = {numbers, 2};
      return Read(params).status();
    };
    CHECK(refused("top_k", 3, 0.9).ok());
    const absl::Status unknown = refused("topp", 0.9, 1);
    CHECK(ErrorFieldOf(unknown) == "topp");
    CHECK(ErrorCodeOf(unknown) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(std::string(unknown.message()).find("did you mean top_p?") != std::string::npos);
    const absl::Status peers = refused("max_new_tokens", 5, 1);
    CHECK(ErrorFieldOf(peers) == "max_new_tokens");
    CHECK(ErrorCodeOf(peers) == SPECD_ERROR_UNSUPPORTED);
    CHECK(std::string(peers.message()).find("max_tokens") != std::string::npos);
    for (const absl::Status& twice : {refused("min_p", 0.1, 1), refused("top_p", 0.5, 0.9)}) {
      CHECK(ErrorFieldOf(twice).ends_with("_p"));
      CHECK(std::string(twice.message()).find("twice") != std::string::npos);
    }
    CHECK(ErrorFieldOf(refused("seed", 1, 1)) == "seed");
    CHECK(ErrorFieldOf(refused("draft_edits", 2, 1)) == "draft_edits");
    const absl::Status part = refused("top_k", 1.5, 1);
    CHECK(ErrorFieldOf(part) == "top_k");
    CHECK(std::string(part.message()).find("top_k = 1.5") != std::string::npos);
    // Only a count within the range tells how many answers the caller has room for.
    for (const double n : {0.5, -1.0, 65.0, 1e300, std::nan("")}) {
      const specd_number numbers[] = {{"n", n}};
      specd_params params = Defaults();
      params.numbers = {numbers, 1};
      CHECK(MakeOpenMessage("r", params)->num_sequences == 1);
    }
  }

  TEST_CASE("opening: counts and pointers of the caller are checked before they are used") {
    const auto field_of = [](auto change) {
      specd_params params = Defaults();
      change(&params);
      return FieldOf(params);
    };
    CHECK(field_of([](specd_params* p) { p->stop_token_ids = {nullptr, 1}; }) == "stop_token_ids");
    CHECK(field_of([](specd_params* p) { p->prompt_ids = {nullptr, 1}; }) == "prompt_ids");
    CHECK(field_of([](specd_params* p) { p->logit_bias = {nullptr, 1}; }) == "logit_bias");
    CHECK(field_of([](specd_params* p) { p->stop_strings = {nullptr, 1}; }) == "stop_strings");
    CHECK(field_of([](specd_params* p) { p->num_processors = 1; }) == "processors");
    static const TokenId some[1] = {};
    // The list is longer than allowed: refused before anything is read.
    CHECK(field_of([](specd_params* p) { p->stop_token_ids = {some, 65}; }) == "stop_token_ids");
    CHECK(field_of([](specd_params* p) {
            p->output_ids = {some, (1u << 20) + 1};
          }) == "output_ids");
    CHECK(field_of([](specd_params* p) {
            p->allowed_token_ids = {some, UINT64_MAX};
          }) == "allowed_token_ids");
    CHECK(field_of([](specd_params* p) { p->bad_word_ids = {some, 1025}; }) == "bad_word_ids");
    const specd_processor nameless = {nullptr, nullptr};
    CHECK(field_of([&](specd_params* p) {
            p->processors = &nameless;
            p->num_processors = 1;
          }) == "processors");
    static const specd_number number = {nullptr, 1};
    CHECK(field_of([](specd_params* p) { p->numbers = {&number, 1}; }) == "numbers");
    CHECK(field_of([](specd_params* p) { p->numbers = {nullptr, 1}; }) == "numbers");
    CHECK(field_of([](specd_params* p) { p->numbers = {&number, 65}; }) == "numbers");
    CHECK(field_of([](specd_params* p) { p->has_seed = 2; }) == "has_seed");
    CHECK(field_of([](specd_params* p) { p->draft_edits = 2; }) == "draft_edits");
  }

  TEST_CASE("opening: the file of lists is there when it is announced, long enough, and a file") {
    OpenSequenceRequest request;
    request.num_prompt_ids = 3;
    request.num_output_ids = 2;
    CHECK(ErrorFieldOf(ReadOpenRequest(request, UniqueFd()).status()) == "num_fds");
    CHECK(ErrorFieldOf(ReadOpenRequest(request, MakeFile(4)).status()) == "fd");
    const absl::StatusOr<OpenRequest> open = ReadOpenRequest(request, MakeFile(6));
    REQUIRE(open.ok());
    CHECK(open->prompt == Ids{0, 1, 2});
    CHECK(open->outputs == Ids{3, 4});
    // With a pipe the verifier's thread would wait for its engine.
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const UniqueFd reader(ends[0]);
    const UniqueFd writer(ends[1]);
    CHECK(ErrorFieldOf(ReadOpenRequest(request, reader).status()) == "fd");
    // The bounds of PROTOCOL.md: 2^20 ids beside one message, and 2^22 of all samples.
    request.num_prompt_ids = (1u << 20) - 2;
    CHECK(ErrorFieldOf(ReadOpenRequest(request, MakeFile(1)).status()) == "fd");
    request.num_prompt_ids += 1;
    CHECK(ErrorFieldOf(ReadOpenRequest(request, MakeFile(1)).status()) == "num_prompt_ids");
    request.num_prompt_ids = (1u << 16) - 2;
    request.numbers = {{"n", 64}};
    CHECK(ErrorFieldOf(ReadOpenRequest(request, MakeFile(1)).status()) == "fd");
    request.num_prompt_ids += 1;
    const absl::Status many = ReadOpenRequest(request, MakeFile(1)).status();
    CHECK(ErrorFieldOf(many) == "n");
    CHECK(many.message().find("fork") != absl::string_view::npos);
    request.num_prompt_ids = UINT32_MAX;
    request.num_output_ids = UINT32_MAX;
    CHECK(ErrorFieldOf(ReadOpenRequest(request, MakeFile(1)).status()) == "num_prompt_ids");
    CHECK(ErrorFieldOf(ReadOpenRequest(OpenSequenceRequest{}, MakeFile(1)).status()) == "num_fds");
  }
}

}  // namespace
}  // namespace specd
