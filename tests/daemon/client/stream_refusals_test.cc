// Refusals of specd_submit_on_stream over a pretended driver, and their texts. A refusal harms no
// other round.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "ipc/include/specd/ops.h"
#include "tests/daemon/client/cuda_stream_fixture.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::CudaStreamFixture;
using test::EnginePtr;
using test::kDevices;
using test::kWithoutWords;
using test::OpenEngine;

TEST_SUITE("unit") {
  TEST_CASE("a library call on device memory says what is missing, and others run on the CPU") {
    // The pretended driver runs no kernels, so "cuda" is missing in a build with nvcc and without.
    GpuAddress address = 0;
    FakeGpuContext& gpu = FakeCuda(1);
    REQUIRE(gpu.Allocate(4 * sizeof(float), &address).ok());
    specd_rows rows;
    specd_rows_init(&rows);
    rows.data = reinterpret_cast<const void*>(address);
    rows.vocab_size = 4;
    rows.num_rows = 1;
    int32_t id = -2;
    CHECK(specd_argmax(&rows, &id, nullptr) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("rows.data is memory of cuda:1"));
    CHECK(LastErrorHas("backend \"cuda\""));
    CHECK(LastErrorHas("copy the rows to the host"));
    CHECK(id == -2);
    const float host[] = {0, 3, 1, 2};
    rows.data = host;
    CHECK(specd_argmax(&rows, &id, nullptr) == SPECD_OK);
    CHECK(id == 1);
    REQUIRE(gpu.Free(address).ok());
  }

  TEST_CASE("a device that has no road to rounds on streams says the remedy, and harms nothing") {
    for (const char* call : {"CreateEvent", "WaitEvent", "LaunchHostFunction"}) {
      CAPTURE(call);
      CudaStreamFixture f(kWithoutWords);
      f.gpu.Inject({call, 0, kGpuNotSupported, false});
      CHECK(f.Submit(f.stream) == SPECD_ERROR_UNSUPPORTED);
      CHECK(LastErrorHas("specd_submit"));
      REQUIRE(f.SubmitPlain() == SPECD_OK);
      f.AnswerRound();
      // The CUDA stream is not held: no part of the round is on it.
      CHECK(Eventually([&] { return f.gpu.Query(f.stream).ok(); }));
      CHECK(f.Submit(f.stream) == SPECD_OK);
    }
  }

  TEST_CASE("a round that a stream takes nothing of leaves its slot as it was") {
    // Bug: the ring entry looked as if its last round had never passed, and stayed full for other
    // CUDA streams.
    for (const size_t device_index : kDevices) {
      for (const bool is_slow : {false, true}) {
        CAPTURE(device_index);
        CAPTURE(is_slow);
        const FakeCudaCounts before = CountFakeCuda();
        CudaStreamFixture f(device_index);
        // One lap, so that the next round's entry had a round before.
        for (int round = 0; round < 2; ++round) {
          REQUIRE(f.Submit(f.stream) == SPECD_OK);
          f.AnswerRound();
        }
        REQUIRE(f.gpu.Synchronize(f.stream).ok());
        // As if the CUDA stream had been released, and had not come to its last write yet.
        if (is_slow) f.Words(1).passed.store(0);
        f.gpu.Inject({device_index == kWithoutWords ? "LaunchHostFunction" : "WriteValue", 0,
                      kGpuUnknown, false});
        CHECK(f.Submit(f.stream) == SPECD_ERROR_INVALID_ARGUMENT);
        // The text names the operation that was asked for.
        CHECK(LastErrorHas(device_index == kWithoutWords ? "a function of the host"
                                                         : "the write of a word"));
        for (int round = 0; round < 2; ++round) {
          REQUIRE(f.SubmitPlain() == SPECD_OK);
          f.AnswerRound();
        }
        if (is_slow) {
          CHECK(f.Submit(f.other_stream) == SPECD_FULL);
          f.Words(1).passed.store(1);
        }
        CHECK(f.Submit(f.other_stream) == SPECD_OK);
        f.AnswerRound();
        f.engine.reset();
        CHECK(CountFakeCuda().unregistered == before.unregistered + 1);
      }
    }
  }

  TEST_CASE("who waits in the engine is chosen by name, and another name is refused") {
    const auto sharing_after_a_round = [](const char* waits) {
      REQUIRE(setenv("SPECD_STREAM_WAITS", waits, 1) == 0);
      CudaStreamFixture f;
      const int code = f.Submit(f.stream);
      REQUIRE(unsetenv("SPECD_STREAM_WAITS") == 0);
      if (code != SPECD_OK) return std::string(specd_last_error());
      specd_sharing sharing;
      REQUIRE(specd_get_sharing(f.engine.get(), &sharing) == SPECD_OK);
      return std::string(sharing.text);
    };
    const auto has_host_waits = [](const std::string& text) {
      return text.find("CPU thread") != std::string::npos;
    };
    CHECK(has_host_waits(sharing_after_a_round("host")));
    CHECK_FALSE(has_host_waits(sharing_after_a_round("device")));
    CHECK_FALSE(has_host_waits(sharing_after_a_round("")));
    const std::string refusal = sharing_after_a_round("Host");
    CHECK(refusal.find("SPECD_STREAM_WAITS = \"Host\"") != std::string::npos);
    CHECK(refusal.find("unset it") != std::string::npos);
    // The next engine is not told about the last one.
    CHECK_FALSE(has_host_waits(sharing_after_a_round("")));
  }

  TEST_CASE("a wait that cannot be enqueued ends rounds on streams, and no others") {
    struct Fault {
      size_t device_index;
      const char* call;
      int after;
    };
    // The second write of a round comes after the wait.
    const Fault faults[] = {
        {0, "WaitValue", 0}, {0, "WriteValue", 1}, {kWithoutWords, "RecordEvent", 0}};
    for (const Fault& fault : faults) {
      CAPTURE(fault.call);
      CudaStreamFixture f(fault.device_index);
      f.gpu.Inject({fault.call, fault.after, kGpuUnknown, false});
      CHECK(f.Submit(f.stream) < 0);
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      CHECK(f.Submit(f.stream) == SPECD_ERROR_STATE);
      REQUIRE(f.SubmitPlain() == SPECD_OK);
      f.AnswerRound();
    }
  }

  TEST_CASE("a stream of another device than the first is refused, and nothing else is harmed") {
    // Bug: with host waits this broke rounds on CUDA streams for good, because the event is the
    // first device's.
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      CudaStreamFixture f(device_index);
      const size_t other_index = (device_index + 1) % kNumFakeCudaDevices;
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      f.AnswerRound();
      GpuStream of_other;
      REQUIRE(FakeCuda(other_index).CreateStream(&of_other).ok());
      CHECK(f.Submit(of_other) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("cuda_stream"));
      CHECK(LastErrorHas(("is of device " + std::to_string(other_index)).c_str()));
      CHECK(LastErrorHas(("on a stream of device " + std::to_string(device_index)).c_str()));
      CHECK(LastErrorHas("specd_submit"));
      CHECK(FakeCuda(other_index).Query(of_other).ok());
      // Device 0 is current in this thread.
      if (device_index != 0) {
        CHECK(f.Submit(GpuStream{nullptr}) == SPECD_ERROR_INVALID_ARGUMENT);
        CHECK(LastErrorHas("make that one current"));
      }
      REQUIRE(FakeCuda(other_index).DestroyStream(of_other).ok());
      CHECK(f.Submit(f.other_stream) == SPECD_OK);
      f.AnswerRound();
    }
  }

  TEST_CASE("a stream that takes nothing of its round does not choose the device") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      const FakeCudaCounts before = CountFakeCuda();
      {
        CudaStreamFixture f(device_index);
        const size_t other_index = (device_index + 1) % kNumFakeCudaDevices;
        FakeGpuContext& other = FakeCuda(other_index);
        GpuStream of_other;
        REQUIRE(other.CreateStream(&of_other).ok());
        other.SetCapturing(true);
        CHECK(f.Submit(of_other) == SPECD_ERROR_STATE);
        CHECK(LastErrorHas("records a graph"));
        other.SetCapturing(false);
        const bool has_words = other_index != kWithoutWords;
        other.Inject({has_words ? "WriteValue" : "LaunchHostFunction", 0, kGpuOutOfMemory, false});
        CHECK(f.Submit(of_other) < 0);
        REQUIRE(f.Submit(f.stream) == SPECD_OK);
        f.AnswerRound();
        // Now it is chosen.
        CHECK(f.Submit(of_other) == SPECD_ERROR_INVALID_ARGUMENT);
        REQUIRE(other.DestroyStream(of_other).ok());
      }
      // A capture is refused before anything is registered.
      CHECK(CountFakeCuda().registered - before.registered == 2);
      CHECK(CountFakeCuda().unregistered - before.unregistered == 2);
    }
  }

  TEST_CASE("a stream may be used first while another thread records a graph") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      CudaStreamFixture f(device_index);
      FakeGpuContext& other = FakeCuda((device_index + 1) % kNumFakeCudaDevices);
      other.SetCapturing(true);
      CHECK(f.Submit(f.stream) == SPECD_OK);
      other.SetCapturing(false);
      f.AnswerRound();
    }
  }

  TEST_CASE("what cannot be a round on a stream is refused by name") {
    CudaStreamFixture f;
    specd_round_end end;
    CHECK(specd_get_round_end(f.engine.get(), &end) == SPECD_ERROR_STATE);
    CHECK(LastErrorHas("specd_submit_batch_on_stream"));
    CHECK(f.Submit(GpuStream{reinterpret_cast<void*>(uintptr_t{12345})}) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("stream"));
    f.gpu.SetCapturing(true);
    CHECK(f.Submit(f.stream) == SPECD_ERROR_STATE);
    CHECK(LastErrorHas("graph"));
    f.gpu.SetCapturing(false);
    CHECK_FALSE(f.Step());
    CHECK(specd_submit_on_stream(f.engine.get(), 1, nullptr, 1, f.stream.handle) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_submit_batch_on_stream(f.engine.get(), 1, nullptr, f.stream.handle) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("batch"));

    specd_options options;
    specd_options_init(&options);
    options.vocab_size = 8;
    const EnginePtr embedded = OpenEngine("embedded:cpu", options);
    const specd_draft part = ChainDraft(f.sequence, 0, nullptr, &f.row);
    CHECK(specd_submit_on_stream(embedded.get(), 1, &part, 1, f.stream.handle) ==
          SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("embedded"));
    specd_batch batch;
    specd_batch_init(&batch);
    batch.num_sequences = 1;
    batch.sequences = &f.sequence;
    CHECK(specd_submit_batch_on_stream(embedded.get(), 1, &batch, f.stream.handle) ==
          SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("use specd_submit or specd_submit_batch"));
    options.stream_timeout_ms = 3'600'001;
    specd_engine* refused = nullptr;
    CHECK(specd_open("embedded:cpu", &options, &refused) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("stream_timeout_ms"));
  }
}

}  // namespace
}  // namespace specd
