// The structs of specd.h: their defaults, their older and newer sizes, and numbers by name, with a
// daemon and embedded.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <string>

#include "ipc/include/specd/specd.h"
#include "speculative/params/param_rules.h"
#include "tests/daemon/server/server_fixture.h"
#include "tests/support/c_drafts.h"

namespace specd {
namespace {

using test::EnginePtr;
using test::OpenBoundEngine;
using test::OpenEngine;
using test::ServerFixture;

EnginePtr OpenEmbedded(uint32_t max_batch, uint32_t max_sequences) {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = 8;
  options.max_batch = max_batch;
  options.max_sequences = max_sequences;
  return OpenEngine("embedded:cpu", options);
}

int OpenSequence(specd_engine* engine, const char* name, specd_sequence_info* info) {
  specd_params params;
  specd_params_init(&params);
  return specd_open_sequence(engine, name, &params, info);
}

TEST_SUITE("unit") {
  TEST_CASE("the _init functions set options and tensors to the defaults of specd.h") {
    specd_options options;
    std::memset(&options, 0xff, sizeof(options));
    specd_options_init(&options);
    CHECK(options.struct_size == sizeof(specd_options));
    CHECK(options.vocab_size == 0);
    CHECK(options.max_batch == 16);
    CHECK(options.max_sequences == 0);
    CHECK(options.max_draft == 8);
    CHECK(options.ring_depth == 4);
    CHECK(options.timeout_ms == 5000);
    CHECK(options.max_scores_per_token == 21);
    CHECK(options.threads == 0);
    CHECK(options.stream_timeout_ms == 0);
    CHECK(options.spin_us == -1);
    CHECK(options.name == nullptr);

    specd_tensor tensor;
    std::memset(&tensor, 0xff, sizeof(tensor));
    specd_tensor_init(&tensor);
    CHECK(tensor.struct_size == sizeof(specd_tensor));
    CHECK(tensor.region == 0);
    CHECK(tensor.dtype == SPECD_FLOAT32);
    CHECK(tensor.kind == SPECD_LOGITS);
    CHECK(tensor.scale == 1.0f);
    CHECK(tensor.cap == 0.0f);
    CHECK(tensor.renormalise == 0);
    CHECK(tensor.columns == 0);
    CHECK(tensor.offset_bytes == 0);
    CHECK(tensor.num_rows == 0);
    CHECK(tensor.row_stride == 0);
  }

  TEST_CASE("the library says why it refuses a peer's name, and what to do instead") {
    for (const RefusedName& refused : RefusedNames()) {
      const std::string name(refused.name);
      const std::string value(refused.value);
      CAPTURE(name);
      const char* text = specd_refused_param(name.c_str(), value.empty() ? nullptr : value.c_str());
      REQUIRE(text != nullptr);
      CHECK(std::string(text) == RefusedParam(name, value).value());
      CHECK(std::string(text).find(refused.remedy) != std::string::npos);
      // The text is valid for the life of the library: each call gives the same one.
      CHECK(specd_refused_param(name.c_str(), value.c_str()) == text);
    }
    CHECK(std::string(specd_refused_param("max_new_tokens", nullptr))
              .find("called max_tokens here") != std::string::npos);
    CHECK(std::string(specd_refused_param("best_of", "3")) ==
          specd_refused_param("best_of", nullptr));
    CHECK(specd_refused_param("verify", nullptr) == nullptr);
    CHECK(specd_refused_param("verify", "block") == nullptr);
    CHECK(specd_refused_param("top_p", nullptr) == nullptr);
    CHECK(specd_refused_param("temperatura", nullptr) == nullptr);
    CHECK(specd_refused_param("", "") == nullptr);
    CHECK(specd_refused_param(nullptr, nullptr) == nullptr);
  }

  TEST_CASE("the library lists the parameters that are numbers, each with a name of its own") {
    specd_param_info info = Sized<specd_param_info>();
    uint32_t count = 0;
    std::map<std::string, specd_param_info> by_name;
    while (specd_get_param_info(count, &info) == SPECD_OK) {
      ++count;
      by_name[info.name] = info;
    }
    CHECK(by_name.size() == count);
    CHECK(specd_get_param_info(count, &info) == SPECD_EMPTY);
    CHECK(specd_get_param_info(UINT32_MAX, &info) == SPECD_EMPTY);
    CHECK(specd_get_param_info(0, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    specd_param_info unsized_info = {};
    CHECK(specd_get_param_info(0, &unsized_info) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(unsized_info.name == nullptr);
    const specd_param_info& top_p = by_name.at("top_p");
    CHECK(top_p.type == SPECD_PARAM_NUMBER);
    CHECK(top_p.default_value == 1);
    CHECK(std::string(top_p.range) == "above 0 .. 1");
    CHECK(top_p.minimum == 0);
    CHECK(top_p.maximum == 1);
    CHECK(std::string(top_p.vllm_name) == "top_p");
    const specd_param_info& limit = by_name.at("max_tokens");
    CHECK(limit.type == SPECD_PARAM_INTEGER);
    CHECK(limit.maximum == 2147483647);
    CHECK(std::string(limit.sglang_name) == "max_new_tokens");
    CHECK(by_name.at("skip_special_tokens").type == SPECD_PARAM_FLAG);
    CHECK(by_name.at("skip_special_tokens").default_value == 1);
    CHECK(std::string(by_name.at("filter_order").vllm_name).empty());
    const specd_param_info& verify = by_name.at("verify");
    CHECK(verify.type == SPECD_PARAM_CHOICE);
    REQUIRE(verify.choices.count == 12);
    CHECK(std::string(verify.choices.items[SPECD_VERIFY_BLOCK]) == "block");
    CHECK(std::string(verify.choices.items[SPECD_VERIFY_TARGET_ONLY]) == "target_only");
    CHECK(std::string(verify.choices.items[SPECD_VERIFY_TYPICAL]) == "typical");
    CHECK(std::string(verify.choices.items[SPECD_VERIFY_SYNTHETIC]) == "synthetic");
    for (const char* other : {"seed", "stop_token_ids", "has_seed"}) {
      CHECK_FALSE(by_name.contains(other));
    }
  }

  TEST_CASE("numbers by name and in fields reach a sequence alike, in a daemon and embedded") {
    ServerFixture f;
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = 8;
    const EnginePtr embedded = OpenEmbedded(1, 8);
    const EnginePtr attached = OpenEngine(f.uri, options);
    for (specd_engine* engine : {embedded.get(), attached.get()}) {
      const specd_number numbers[] = {{"n", 3}, {"verify", SPECD_VERIFY_TOKEN}};
      specd_params params;
      specd_params_init(&params);
      params.numbers = {numbers, 2};
      specd_sequence_info infos[3];
      for (specd_sequence_info& info : infos) info = Sized<specd_sequence_info>();
      REQUIRE(specd_open_sequence(engine, "r", &params, infos) == SPECD_OK);
      CHECK(infos[2].sequence != 0);
      CHECK(infos[2].verify == SPECD_VERIFY_TOKEN);
      const specd_number hot[] = {{"temperature", 100.5}};
      params.numbers = {hot, 1};
      CHECK(specd_open_sequence(engine, "s", &params, infos) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(std::string(specd_last_error()).find("temperature = 100.5 is outside 0 .. 100") !=
            std::string::npos);
      const specd_number peers[] = {{"min_new_tokens", 2}};
      params.numbers = {peers, 1};
      CHECK(specd_open_sequence(engine, "s", &params, infos) == SPECD_ERROR_UNSUPPORTED);
      CHECK(std::string(specd_last_error()).find("min_tokens") != std::string::npos);
    }
  }

  TEST_CASE("a struct of an older header: what it does not have yet is not read") {
    // The name would be refused, so this checks that it is not read.
    const std::string too_long(65, 'x');
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = 8;
    options.name = too_long.c_str();
    specd_engine* refused = nullptr;
    CHECK(specd_open("embedded:cpu", &options, &refused) == SPECD_ERROR_INVALID_ARGUMENT);
    options.struct_size = offsetof(specd_options, name);
    const EnginePtr engine = OpenEngine("embedded:cpu", options);

    specd_params params;
    std::memset(&params, 0xff, sizeof(params));
    params.struct_size = offsetof(specd_params, temperature);
    params.verify = SPECD_VERIFY_AUTO;
    params.has_seed = 0;
    params.n = 1;
    specd_sequence_info info = Sized<specd_sequence_info>();
    CHECK(specd_open_sequence(engine.get(), "r", &params, &info) == SPECD_OK);
    CHECK(info.verify == SPECD_VERIFY_AUTO);  // temperature has its default, 1
  }

  TEST_CASE("a handle has a state from its opening to its closing, whoever has the slot later") {
    const EnginePtr engine = OpenEmbedded(1, 1);
    specd_sequence_state state;
    CHECK(specd_get_sequence_state(engine.get(), 0, &state) == SPECD_ERROR_NOT_FOUND);
    specd_sequence_info first = Sized<specd_sequence_info>();
    REQUIRE(OpenSequence(engine.get(), "r", &first) == SPECD_OK);
    CHECK(specd_get_sequence_state(engine.get(), first.sequence, &state) == SPECD_OK);
    CHECK(specd_get_sequence_state(engine.get(), first.sequence + 1, &state) ==
          SPECD_ERROR_NOT_FOUND);  // a slot that does not exist
    REQUIRE(specd_close_sequence(engine.get(), first.sequence) == SPECD_OK);
    CHECK(specd_get_sequence_state(engine.get(), first.sequence, &state) == SPECD_ERROR_NOT_FOUND);
    specd_sequence_info second = Sized<specd_sequence_info>();
    REQUIRE(OpenSequence(engine.get(), "r", &second) == SPECD_OK);
    CHECK(specd_get_sequence_state(engine.get(), first.sequence, &state) == SPECD_ERROR_NOT_FOUND);
    REQUIRE(specd_get_sequence_state(engine.get(), second.sequence, &state) == SPECD_OK);
    CHECK(state.finish_reason == SPECD_FINISH_NONE);
  }

  TEST_CASE("max_sequences counts open sequences, and 0 means max_batch") {
    const EnginePtr three = OpenEmbedded(1, 3);
    const EnginePtr two = OpenEmbedded(2, 0);
    specd_sequence_info info = Sized<specd_sequence_info>();
    for (const char* name : {"a", "b"}) {
      CHECK(OpenSequence(three.get(), name, &info) == SPECD_OK);
      CHECK(OpenSequence(two.get(), name, &info) == SPECD_OK);
    }
    CHECK(OpenSequence(two.get(), "c", &info) == SPECD_ERROR_EXHAUSTED);
    CHECK(OpenSequence(three.get(), "c", &info) == SPECD_OK);
    CHECK(OpenSequence(three.get(), "d", &info) == SPECD_ERROR_EXHAUSTED);
    REQUIRE(specd_close_sequence(three.get(), info.sequence) == SPECD_OK);
    CHECK(OpenSequence(three.get(), "d", &info) == SPECD_OK);
  }

  TEST_CASE("what an engine says when it attaches arrives at the daemon's session") {
    ServerFixture f;
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = 8;
    options.max_batch = 5;
    options.max_sequences = 6;
    options.max_draft = 7;
    options.ring_depth = 2;
    options.max_scores_per_token = 3;
    options.name = "mine";
    const EnginePtr engine = OpenBoundEngine(f.uri, options);
    const HelloRequest hello = f.Hello();
    CHECK(hello.limits == SessionLimits{8, 5, 6, 7, 2, 3});
    CHECK(hello.name == "mine");
    CHECK(hello.pid == static_cast<uint32_t>(getpid()));
  }
}

}  // namespace
}  // namespace specd
