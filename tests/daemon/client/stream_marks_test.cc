// specd_mark_drafts over a pretended driver: the mark comes between drafter and target model, a
// mark without a round harms nothing, and no CUDA stream touches words that no longer exist.
#include <doctest/doctest.h>

#include "ipc/segment/round_words.h"
#include "tests/daemon/client/cuda_stream_fixture.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::CudaStreamFixture;
using test::kDevices;
using test::kWithoutWords;

int Mark(CudaStreamFixture* f, GpuStream on) {
  return specd_mark_drafts(f->engine.get(), on.handle);
}

void Answer(CudaStreamFixture* f) {
  f->server.session.backend->script = {Confirm(0, {5})};
  REQUIRE(Eventually([&] { return f->Step(); }));
  specd_completion done = SizedCompletion();
  REQUIRE(specd_poll(f->engine.get(), &done, -1) == SPECD_OK);
  CHECK(done.results[0].status == SPECD_STATUS_OK);
}

TEST_SUITE("unit") {
  TEST_CASE("the mark comes after the drafter and before the target model") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      CudaStreamFixture f(device_index);
      GpuAddress drafter = 0;
      REQUIRE(f.gpu.Allocate(4096, &drafter).ok());
      REQUIRE(f.gpu.WaitValue(f.stream, drafter, GpuWord::k32, 1).ok());
      REQUIRE(Mark(&f, f.stream) == SPECD_OK);
      f.CloseGate(f.stream);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      CHECK_FALSE(AreDraftsMarked(f.Words(1), 1));
      __atomic_store_n(reinterpret_cast<uint32_t*>(drafter), 1, __ATOMIC_RELEASE);
      CHECK(Eventually([&] { return AreDraftsMarked(f.Words(1), 1); }));
      CHECK(f.server.session.session->channel().AreDraftsMarked());
      CHECK_FALSE(AreRowsReady(f.Words(1), 1));
      CHECK_FALSE(f.Step());
      f.OpenGate();
      Answer(&f);
      // The next round has no mark of its own.
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      Answer(&f);
      CHECK_FALSE(AreDraftsMarked(f.Words(2), 2));
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      CHECK(f.gpu.violations().empty());
      REQUIRE(f.gpu.Free(drafter).ok());
    }
  }

  TEST_CASE("a second mark counts once the first has come") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      CudaStreamFixture f(device_index);
      REQUIRE(Mark(&f, f.stream) == SPECD_OK);
      REQUIRE(Eventually([&] { return AreDraftsMarked(f.Words(1), 1); }));
      f.CloseGate(f.stream);
      REQUIRE(Mark(&f, f.stream) == SPECD_OK);
      CHECK_FALSE(AreDraftsMarked(f.Words(1), 1));
      // The second has not come, and a third adds nothing, on any CUDA stream.
      REQUIRE(Mark(&f, f.other_stream) == SPECD_OK);
      REQUIRE(f.gpu.Synchronize(f.other_stream).ok());
      CHECK_FALSE(AreDraftsMarked(f.Words(1), 1));
      f.OpenGate();
      CHECK(Eventually([&] { return AreDraftsMarked(f.Words(1), 1); }));
    }
  }

  TEST_CASE("a mark that has not come keeps its ring entry, and rounds go on without marks") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      CudaStreamFixture f(device_index);  // two ring entries
      f.CloseGate(f.other_stream);
      REQUIRE(Mark(&f, f.other_stream) == SPECD_OK);
      for (int round = 0; round < 2; ++round) {
        REQUIRE(f.SubmitPlain() == SPECD_OK);
        Answer(&f);
      }
      CHECK(Mark(&f, f.stream) == SPECD_FULL);
      f.OpenGate();
      CHECK(Eventually([&] { return Mark(&f, f.stream) == SPECD_OK; }));
      CHECK(Eventually([&] { return AreDraftsMarked(f.Words(3), 3); }));
      REQUIRE(f.SubmitPlain() == SPECD_OK);
      REQUIRE(f.SubmitPlain() == SPECD_OK);
      CHECK(Mark(&f, f.stream) == SPECD_FULL);  // no round can be submitted
    }
  }

  TEST_CASE("close waits for a mark that no round followed, and gives the words back") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      const FakeCudaCounts before = CountFakeCuda();
      CudaStreamFixture f(device_index);
      REQUIRE(Mark(&f, f.stream) == SPECD_OK);
      f.engine.reset();
      CHECK(CountFakeCuda().unregistered == before.unregistered + 1);
      CHECK(f.gpu.violations().empty());
    }
  }

  TEST_CASE("the words of a mark that does not come in time stay where they are") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      const FakeCudaCounts before = CountFakeCuda();
      CudaStreamFixture f(device_index, CudaStreamFixture::kForeverMs, 20);
      f.CloseGate(f.stream);
      REQUIRE(Mark(&f, f.stream) == SPECD_OK);
      f.engine.reset();
      CHECK(CountFakeCuda().unregistered == before.unregistered);
      f.OpenGate();
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      CHECK(f.gpu.violations().empty());
    }
  }

  TEST_CASE("refusals by name leave no mark and no registration") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      const FakeCudaCounts before = CountFakeCuda();
      CudaStreamFixture f(device_index);
      f.gpu.SetCapturing(true);
      CHECK(Mark(&f, f.stream) == SPECD_ERROR_STATE);
      CHECK(LastErrorHas("records a graph"));
      f.gpu.SetCapturing(false);
      const char* const call = device_index == kWithoutWords ? "LaunchHostFunction" : "WriteValue";
      f.gpu.Inject({call, 0, kGpuUnknown, false});
      CHECK(Mark(&f, f.stream) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(CountFakeCuda().registered - before.registered ==
            CountFakeCuda().unregistered - before.unregistered);
      CHECK_FALSE(AreDraftsMarked(f.Words(1), 1));
      REQUIRE(Mark(&f, f.stream) == SPECD_OK);
      CHECK(Eventually([&] { return AreDraftsMarked(f.Words(1), 1); }));
      CHECK(Mark(&f, {reinterpret_cast<void*>(2)}) == SPECD_ERROR_UNSUPPORTED);
      CHECK(LastErrorHas("another stream in every thread"));
    }
    CHECK(specd_mark_drafts(nullptr, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace specd
