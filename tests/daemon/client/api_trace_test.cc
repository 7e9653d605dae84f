// The C interface of traces: an embedded engine's own, and a daemon's of an attached engine.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/support/temporary_folder.h"

namespace specd::test {
namespace {

class TraceDirectory : public TemporaryFolder {
 public:
  size_t NumFiles(const std::string& ending) const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      count += entry.path().string().ends_with(ending) ? 1 : 0;
    }
    return count;
  }
};

specd_options TracedOptions(const char* directory, const char* options) {
  specd_options traced;
  specd_options_init(&traced);
  traced.vocab_size = 8;
  traced.trace = directory;
  traced.trace_options = options;
  return traced;
}

// A greedy round without drafts over one row.
void RunRound(specd_engine* engine, uint64_t round_id) {
  static specd_sequence_info sequence;
  if (round_id == 1) {
    specd_region memory;
    REQUIRE(specd_alloc(engine, 8 * sizeof(float), &memory) == SPECD_OK);
    static_cast<float*>(memory.data)[3] = 1;
    specd_tensor rows;
    specd_tensor_init(&rows);
    rows.region = memory.id;
    rows.num_rows = 1;
    REQUIRE(specd_bind(engine, SPECD_TARGET_ROWS, &rows) == SPECD_OK);
    specd_params params;
    specd_params_init(&params);
    params.temperature = 0;
    params.max_tokens = 1000;
    sequence = Sized<specd_sequence_info>();
    REQUIRE(specd_open_sequence(engine, "r", &params, &sequence) == SPECD_OK);
  }
  const uint32_t row = 0;
  auto draft = Sized<specd_draft>();
  draft.sequence = sequence.sequence;
  draft.target_rows = &row;
  REQUIRE(specd_submit(engine, round_id, &draft, 1) == SPECD_OK);
  auto done = Sized<specd_completion>();
  done.result_size = sizeof(specd_result);
  REQUIRE(specd_poll(engine, &done, 1000) == SPECD_OK);
  CHECK(done.results[0].tokens[0] == 3);
}

TEST_SUITE("unit") {
  TEST_CASE("an embedded engine writes a trace, and names it on request") {
    const TraceDirectory directory;
    const specd_options options = TracedOptions(directory.path().c_str(), "level=rows,check=1");
    specd_engine* engine = nullptr;
    const int code = specd_open("embedded:cpu", &options, &engine);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    for (uint64_t i = 1; i <= 5; ++i) RunRound(engine, i);
    specd_trace_dump dump = {};
    REQUIRE(specd_dump_trace(engine, &dump) == SPECD_OK);
    CHECK(dump.num_rounds == 5);
    CHECK(dump.num_lost == 0);
    CHECK(std::string(dump.path).starts_with(directory.path()));
    CHECK(std::filesystem::exists(dump.path));
    specd_close(engine);
    CHECK(directory.NumFiles(".mcap") == 1);
    CHECK(directory.NumFiles(".rows") == 1);
  }

  TEST_CASE("two embedded engines of one process may have one directory") {
    const TraceDirectory directory;
    const specd_options options = TracedOptions(directory.path().c_str(), nullptr);
    specd_engine* first = nullptr;
    specd_engine* second = nullptr;
    REQUIRE(specd_open("embedded:cpu", &options, &first) == SPECD_OK);
    REQUIRE(specd_open("embedded:cpu", &options, &second) == SPECD_OK);
    RunRound(first, 1);
    RunRound(second, 1);
    specd_close(second);
    specd_close(first);
    CHECK(directory.NumFiles(".mcap") == 2);
  }

  TEST_CASE("trace options are refused with their field, and a trace that is not recorded too") {
    specd_engine* engine = nullptr;
    specd_options options = TracedOptions("/proc/none", nullptr);
    CHECK(specd_open("embedded:cpu", &options, &engine) != SPECD_OK);
    CHECK(std::string(specd_last_error()).find("trace = /proc/none") != std::string::npos);
    options = TracedOptions("somewhere", "evry=1");
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(std::string(specd_last_error()).find("did you mean every?") != std::string::npos);
    options = TracedOptions(nullptr, "every=1");
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    // Over a socket the daemon records; the socket itself is not looked for.
    options = TracedOptions("somewhere", nullptr);
    CHECK(specd_open("unix:/nowhere", &options, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(std::string(specd_last_error()).find("--trace=somewhere") != std::string::npos);
    options = TracedOptions(nullptr, "level=rows");
    CHECK(specd_open("unix:/nowhere", &options, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(std::string(specd_last_error()).find("--trace_options=level=rows") != std::string::npos);

    options = TracedOptions(nullptr, nullptr);
    REQUIRE(specd_open("embedded:cpu", &options, &engine) == SPECD_OK);
    specd_trace_dump dump = {};
    CHECK(specd_dump_trace(engine, &dump) == SPECD_ERROR_UNSUPPORTED);
    CHECK(std::string(specd_last_error()).find("no trace is recorded") != std::string::npos);
    CHECK(specd_dump_trace(engine, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_dump_trace(nullptr, &dump) == SPECD_ERROR_INVALID_ARGUMENT);
    specd_close(engine);
  }
}

}  // namespace
}  // namespace specd::test
