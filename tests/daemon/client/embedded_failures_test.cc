// An embedded engine whose pretended device fails: the answers of the C interface, and the last
// error that it leaves. A capture of cuda_stream is the failure that passes.
#include <doctest/doctest.h>

#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/client/engine.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/client/graph_device.h"
#include "tests/support/c_drafts.h"

namespace {
// True: this thread gets no memory.
thread_local bool memory_is_out = false;
}  // namespace

// GCC takes a free() of what operator new gave for a mistake once both are inlined.
__attribute__((noinline)) void* operator new(size_t size_bytes) {
  void* const memory = memory_is_out ? nullptr : std::malloc(size_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void* operator new(size_t size_bytes, const std::nothrow_t&) noexcept {
  return memory_is_out ? nullptr : std::malloc(size_bytes);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace specd {
namespace {

using test::kSequences;

std::string LastError() { return specd_last_error(); }
bool LastErrorHas(std::string_view part) { return LastError().find(part) != std::string::npos; }

// The text that is still the last error after a call that left it alone.
constexpr std::string_view kMark = "engine is NULL";
void MarkLastError() {
  REQUIRE(specd_score(nullptr, nullptr, 0, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
  REQUIRE(LastError() == kMark);
}

// An engine on a CUDA stream of its own, which may capture. Each call answers with its first
// status.
struct CaptureFixture : test::GraphDevice {
  CaptureFixture() {
    OpenEngine(&stream);
    BindAll();
    g->Open();
    g->Forward(g->sequences);
  }

  void Submit(uint64_t round_id) {
    const std::vector<specd_draft> parts = g->Drafts(false);
    REQUIRE(specd_submit(g->engine, round_id, parts.data(), static_cast<uint32_t>(parts.size())) ==
            SPECD_OK);
  }
  uint32_t Round() {
    Submit(7);
    specd_completion done = SizedCompletion();
    REQUIRE(specd_poll(g->engine, &done, 0) == SPECD_OK);
    REQUIRE(done.num_results == kSequences);
    return done.results[0].status;
  }
  uint32_t SampleDraft() {
    specd_draft_request request = Sized<specd_draft_request>();
    request.sequence = g->sequences[2];
    request.mask_row = -1;
    request.num_children = 1;
    specd_draft_children children = Sized<specd_draft_children>();
    REQUIRE(specd_sample_draft(g->engine, &request, 1, &children) == SPECD_OK);
    return children.status;
  }
  uint32_t Score() {
    const uint32_t row = 1;
    const int32_t id = 5;
    specd_score_request request = Sized<specd_score_request>();
    request.rows = &row;
    request.ids = &id;
    request.num_ids = 1;
    specd_score_result result = Sized<specd_score_result>();
    REQUIRE(specd_score(g->engine, &request, 1, &result) == SPECD_OK);
    return result.status;
  }

  int stream = 0;  // only its address is used
};

TEST_SUITE("unit") {
  TEST_CASE("specd_open on a stream that captures is refused, and spoils no capture") {
    test::GraphDevice f;
    int stream = 0;
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = test::kVocab;
    options.cuda_stream = &stream;
    specd_engine* engine = nullptr;
    const auto refused = [&](int code, const char* field) {
      CHECK(specd_open("embedded:cuda", &options, &engine) == code);
      CHECK(engine == nullptr);
      CHECK(ErrorFieldOf(Engine::Open("embedded:cuda", options).status()) == field);
    };
    f.driver.stream_captures = true;
    refused(SPECD_ERROR_STATE, "cuda_stream");
    CHECK(LastErrorHas("cuda_stream is capturing"));
    CHECK(LastErrorHas("before the capture begins, or after it has ended"));
    CHECK(f.driver.caller_spoiled_by == "");
    f.driver.stream_captures = false;
    REQUIRE(specd_open("embedded:cuda", &options, &engine) == SPECD_OK);
    specd_close(engine);
    engine = nullptr;

    // The device is another matter: an engine may give it up for good.
    f.driver.failing_call = "UseStream";
    refused(SPECD_ERROR_INVALID_ARGUMENT, "cuda_stream");
    f.driver.failing_call = "ListDevices";
    refused(SPECD_ERROR_UNSUPPORTED, "uri");
  }

  TEST_CASE("the reason of a device error is the last error of the call that brings it alone") {
    CaptureFixture f;
    CHECK(f.SampleDraft() == SPECD_STATUS_OK);
    CHECK(f.Score() == SPECD_STATUS_OK);
    f.Submit(1);
    CHECK(f.g->Poll(1));

    f.driver.stream_captures = true;
    const auto fails = [&](uint32_t (CaptureFixture::*call)()) {
      MarkLastError();
      CHECK((f.*call)() == SPECD_STATUS_DEVICE_ERROR);
      CHECK(LastErrorHas("cuda_stream is capturing"));
      CHECK(LastErrorHas("a round runs on it now"));
      CHECK(LastErrorHas("specd_enqueue_staged"));
      CHECK(f.driver.caller_spoiled_by == "");
    };
    fails(&CaptureFixture::SampleDraft);
    fails(&CaptureFixture::Score);
    fails(&CaptureFixture::Round);

    f.driver.stream_captures = false;
    MarkLastError();
    CHECK(f.SampleDraft() == SPECD_STATUS_OK);
    CHECK(LastError() == kMark);
    CHECK(f.Score() == SPECD_STATUS_OK);
    CHECK(LastError() == kMark);
    f.Submit(2);
    CHECK(f.g->Poll(2));  // also finds that the failed round kept nothing
    CHECK(LastError() == kMark);
    specd_completion done = SizedCompletion();
    CHECK(specd_poll(f.g->engine, &done, 0) == SPECD_EMPTY);
    CHECK(LastError() == kMark);
  }

  TEST_CASE("an answer that has been taken is delivered though no memory is left for its reason") {
    CaptureFixture f;
    REQUIRE(specd_enqueue_staged(f.g->engine, kSequences, &f.stream) == SPECD_OK);
    const std::vector<specd_draft> parts = f.g->Drafts(true);
    for (uint64_t round = 1; round <= 2; ++round) {
      REQUIRE(specd_stage_round(f.g->engine, round, parts.data(),
                                static_cast<uint32_t>(parts.size())) == SPECD_OK);
    }
    f.driver.fault = GpuResult::Error("an illegal address");
    specd_completion done = SizedCompletion();
    REQUIRE(specd_poll(f.g->engine, &done, 20000) == SPECD_OK);
    CHECK(LastErrorHas("an illegal address"));
    MarkLastError();
    memory_is_out = true;
    const int code = specd_poll(f.g->engine, &done, 20000);
    memory_is_out = false;
    CHECK(code == SPECD_OK);
    CHECK(done.round_id == 2);
    REQUIRE(done.num_results == kSequences);
    CHECK(done.results[0].status == SPECD_STATUS_DEVICE_ERROR);
    CHECK(LastError() == "");
    f.driver.fault = GpuResult::Ok();
  }
}

}  // namespace
}  // namespace specd
