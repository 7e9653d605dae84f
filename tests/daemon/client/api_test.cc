// The C interface in embedded mode, as an engine uses it.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace {

using specd::LastErrorHas;

constexpr uint32_t kVocab = 5;

struct EngineFixture {
  EngineFixture() {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.max_batch = 2;
    options.max_draft = 3;
    options.ring_depth = 2;
    REQUIRE(specd_open("embedded:cpu", &options, &engine) == SPECD_OK);
    REQUIRE(specd_alloc(engine, 16 * kVocab * sizeof(float), &region) == SPECD_OK);
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region.id;
    tensor.num_rows = 16;
    REQUIRE(specd_bind(engine, SPECD_TARGET_ROWS, &tensor) == SPECD_OK);
    logits = static_cast<float*>(region.data);
  }
  ~EngineFixture() { specd_close(engine); }

  specd_sequence Open(const char* name, double temperature = 0, uint32_t max_tokens = 100) {
    specd_params params;
    specd_params_init(&params);
    params.temperature = temperature;
    params.max_tokens = max_tokens;
    params.has_seed = 1;
    params.seed = 5;
    specd_sequence_info info = specd::Sized<specd_sequence_info>();
    REQUIRE(specd_open_sequence(engine, name, &params, &info) == SPECD_OK);
    return info.sequence;
  }

  // Makes `id` the argmax of a row.
  void SetArgmax(uint32_t row, uint32_t id) {
    for (uint32_t i = 0; i < kVocab; ++i) logits[row * kVocab + i] = i == id ? 4.0f : 0.0f;
  }

  specd_engine* engine = nullptr;
  specd_region region{};
  float* logits = nullptr;
  const uint32_t rows[4] = {0, 1, 2, 3};
};

TEST_SUITE("unit") {
  TEST_CASE("a greedy round: drafts that equal the argmax are accepted, then one token more") {
    EngineFixture f;
    const specd_sequence s = f.Open("r");
    f.SetArgmax(0, 1);
    f.SetArgmax(1, 2);
    f.SetArgmax(2, 3);
    f.SetArgmax(3, 4);
    const int32_t drafts[] = {1, 2, 0};
    const specd_draft part = specd::ChainDraft(s, 3, drafts, f.rows);
    REQUIRE(specd_submit(f.engine, 7, &part, 1) == SPECD_OK);
    specd_completion done = specd::SizedCompletion();
    REQUIRE(specd_poll(f.engine, &done, 0) == SPECD_OK);
    CHECK(done.round_id == 7);
    REQUIRE(done.num_results == 1);
    const specd_result& result = done.results[0];
    CHECK(result.status == SPECD_STATUS_OK);
    CHECK(result.num_accepted == 2);
    REQUIRE(result.num_kept == 3);
    CHECK(std::vector<int32_t>(result.tokens, result.tokens + 3) == std::vector<int32_t>{1, 2, 3});
    CHECK(result.stop_token == -1);
    CHECK(specd_poll(f.engine, &done, 0) == SPECD_EMPTY);
  }

  TEST_CASE("a ring that is full says so, and polling makes room") {
    EngineFixture f;
    const specd_sequence s = f.Open("r");
    f.SetArgmax(0, 1);
    const specd_draft part = specd::ChainDraft(s, 0, nullptr, f.rows);
    CHECK(specd_submit(f.engine, 1, &part, 1) == SPECD_OK);
    CHECK(specd_submit(f.engine, 2, &part, 1) == SPECD_OK);
    CHECK(specd_submit(f.engine, 3, &part, 1) == SPECD_FULL);
    specd_completion done = specd::SizedCompletion();
    REQUIRE(specd_poll(f.engine, &done, 0) == SPECD_OK);
    CHECK(done.round_id == 1);
    CHECK(specd_submit(f.engine, 3, &part, 1) == SPECD_OK);
    REQUIRE(specd_poll(f.engine, &done, 0) == SPECD_OK);
    CHECK(done.round_id == 2);
    CHECK(done.results[0].total_kept == 2);
  }

  TEST_CASE("arguments are refused with field, value and range, and nothing changes") {
    EngineFixture f;
    const specd_sequence s = f.Open("r");
    const int32_t drafts[] = {1, 2, 3};
    const uint8_t kinds[] = {0, 1, 9};
    specd_draft part = specd::ChainDraft(s, 4, drafts, f.rows);
    CHECK(specd_submit(f.engine, 1, &part, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("drafts[0].num_nodes = 4 is outside 0 .. 3"));
    part.num_nodes = 3;
    part.kinds = kinds;
    CHECK(specd_submit(f.engine, 1, &part, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("draft_rows is NULL"));
    part.draft_rows = f.rows;
    CHECK(specd_submit(f.engine, 1, &part, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("kinds[2] = 9"));
    part.kinds = nullptr;
    part.target_rows = nullptr;
    CHECK(specd_submit(f.engine, 1, &part, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("target_rows is NULL"));
    part.target_rows = f.rows;
    CHECK(specd_submit(f.engine, 1, &part, 0) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("1 .. 2"));
    CHECK(specd_submit(f.engine, 1, &part, 3) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_submit(f.engine, 1, nullptr, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("drafts is NULL"));
    specd_completion done = specd::SizedCompletion();
    CHECK(specd_poll(f.engine, &done, 0) == SPECD_EMPTY);
    CHECK(specd_poll(f.engine, &done, -2) == SPECD_ERROR_INVALID_ARGUMENT);
  }

  TEST_CASE("uris, limits and versions of structs are checked at open") {
    specd_engine* engine = nullptr;
    specd_options options;
    specd_options_init(&options);
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("vocab_size = 0"));
    options.vocab_size = 8;
    CHECK(specd_open("http://x", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("embedded:cpu"));
    CHECK(specd_open("embedded:tpu", &options, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("embedded:tpu"));
    // A device is used if there is one. Otherwise the text names the missing part, and the uri that
    // needs none.
    const int on_device = specd_open("embedded:cuda", &options, &engine);
    CHECK((on_device == SPECD_OK || on_device == SPECD_ERROR_UNSUPPORTED));
    if (on_device == SPECD_OK) {
      specd_close(engine);
    } else {
      CHECK(LastErrorHas("uri = \"embedded:cuda\": backend \"cuda\""));
      CHECK(LastErrorHas("use \"cpu\""));
    }
    CHECK(specd_open("unix:/nonexistent/specd.sock", &options, &engine) == SPECD_ERROR_NOT_FOUND);
    options.ring_depth = 3;
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("ring_depth"));
    options.ring_depth = 4;
    options.timeout_ms = 0;
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("timeout_ms = 0 is outside 1 .. 3600000"));
    options.timeout_ms = 5000;
    options.struct_size = 0;
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("struct_size"));
    CHECK(engine == nullptr);
  }

  TEST_CASE("a struct of a newer header: zeros beyond what is known pass, a value is refused") {
    struct {
      specd_options known;
      uint64_t later;
    } newer;
    std::memset(&newer, 0, sizeof(newer));
    specd_options_init(&newer.known);
    newer.known.vocab_size = 8;
    newer.known.struct_size = sizeof(newer);
    specd_engine* engine = nullptr;
    REQUIRE(specd_open("embedded:cpu", &newer.known, &engine) == SPECD_OK);
    specd_close(engine);
    newer.later = 1;
    CHECK(specd_open("embedded:cpu", &newer.known, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("newer library"));
  }

  TEST_CASE("what embedded mode cannot do is refused by name") {
    EngineFixture f;
    specd_params params;
    specd_params_init(&params);
    const char* stops[] = {"\n"};
    params.stop_strings = {stops, 1};
    specd_sequence_info info = specd::Sized<specd_sequence_info>();
    CHECK(specd_open_sequence(f.engine, "r", &params, &info) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("tokenizer"));
    params.stop_strings = {nullptr, 0};
    params.has_seed = 2;
    CHECK(specd_open_sequence(f.engine, "r", &params, &info) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("has_seed = 2"));
  }

  TEST_CASE("binding is refused while rounds are in flight") {
    EngineFixture f;
    const specd_sequence s = f.Open("r");
    f.SetArgmax(0, 1);
    const specd_draft part = specd::ChainDraft(s, 0, nullptr, f.rows);
    REQUIRE(specd_submit(f.engine, 1, &part, 1) == SPECD_OK);
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = f.region.id;
    tensor.num_rows = 1;
    CHECK(specd_bind(f.engine, SPECD_TARGET_ROWS, &tensor) == SPECD_ERROR_STATE);
    specd_completion done = specd::SizedCompletion();
    REQUIRE(specd_poll(f.engine, &done, 0) == SPECD_OK);
    CHECK(specd_bind(f.engine, SPECD_TARGET_ROWS, &tensor) == SPECD_OK);
    CHECK(specd_bind(f.engine, 99, &tensor) == SPECD_ERROR_UNSUPPORTED);
  }

  TEST_CASE("a memfd of the engine's own must be sealed") {
    EngineFixture f;
    const int fd = memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(ftruncate(fd, 4096) == 0);
    specd_region region;
    CHECK(specd_import_fd(f.engine, fd, 4096, &region) == SPECD_ERROR_REGION);
    CHECK(LastErrorHas("F_SEAL_SHRINK"));
    close(fd);
    CHECK(specd_import_fd(f.engine, -1, 4096, &region) == SPECD_ERROR_INVALID_ARGUMENT);
  }

  TEST_CASE("a handle that was never given out has no state") {
    // Bug: generation 0 of a fresh slot matched handles whose generation was 0 modulo 2^29.
    EngineFixture f;
    specd_sequence_state state;
    for (const specd_sequence never : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 61, ~uint64_t{0}}) {
      CHECK(specd_get_sequence_state(f.engine, never, &state) == SPECD_ERROR_NOT_FOUND);
    }
    const specd_sequence s = f.Open("r");
    CHECK(specd_get_sequence_state(f.engine, s, &state) == SPECD_OK);
    CHECK(specd_get_sequence_state(f.engine, s + (uint64_t{1} << 61), &state) ==
          SPECD_ERROR_NOT_FOUND);
    const specd_sequence last_slot = s | 0xffff;  // far behind the engine's table
    CHECK(specd_get_sequence_state(f.engine, last_slot, &state) == SPECD_ERROR_NOT_FOUND);
  }

  TEST_CASE("codes have names") {
    CHECK(std::string(specd_code_name(SPECD_FULL)) == "SPECD_FULL");
    CHECK(std::string(specd_code_name(12345)) == "SPECD_ERROR_INTERNAL");
  }
}

}  // namespace
