// specd_submit_on_stream over a pretended driver: what is enqueued, what waits for what, what is
// refused, and that no stream touches words that are no longer there.
#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "ipc/round_words.h"
#include "tests/daemon/server_fixture.h"
#include "tests/support/c_drafts.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_cuda.h"

namespace specd {
namespace {

using test::EnginePtr;
using test::LastErrorHas;
using test::OpenEngine;
using test::ServerFixture;
using test::ServerOptions;

// Words of 64 bits, words of 32 bits, and functions of the host in their place.
constexpr size_t kDevices[] = {0, 1, 2};
constexpr size_t kWithoutWords = 2;

struct StreamFixture {
  static constexpr uint32_t kForeverMs = 3'600'000;

  explicit StreamFixture(size_t device_index = 0, uint32_t stream_timeout_ms = kForeverMs,
                         uint32_t timeout_ms = 30'000)
      : gpu(FakeCuda(device_index)) {
    specd_options options = ServerOptions();
    options.stream_timeout_ms = stream_timeout_ms;
    options.timeout_ms = timeout_ms;
    engine = OpenEngine(server.uri, options);
    REQUIRE(gpu.CreateStream(&stream).ok());
    REQUIRE(gpu.CreateStream(&other_stream).ok());
    REQUIRE(gpu.Allocate(4096, &gate).ok());
    specd_params params;
    specd_params_init(&params);
    params.max_tokens = 100;
    specd_sequence_info info;
    REQUIRE(specd_open_sequence(engine.get(), "r", &params, &info) == SPECD_OK);
    sequence = info.sequence;
  }
  ~StreamFixture() {
    OpenGate();
    engine.reset();
    (void)gpu.Synchronize(stream);
    (void)gpu.Synchronize(other_stream);
    (void)gpu.Free(gate);
  }

  int Submit(GpuStream on, uint64_t round_id = 1) {
    const specd_draft part = ChainDraft(sequence, 0, nullptr, &row);
    return specd_submit_on_stream(engine.get(), round_id, &part, 1, on.handle);
  }
  int SubmitPlain(uint64_t round_id = 1) {
    const specd_draft part = ChainDraft(sequence, 0, nullptr, &row);
    return specd_submit(engine.get(), round_id, &part, 1);
  }
  // What is enqueued behind it happens after OpenGate: a forward that takes its time.
  void CloseGate(GpuStream on) { REQUIRE(gpu.WaitValue(on, gate, GpuWord::k32, 1).ok()); }
  void OpenGate() { __atomic_store_n(reinterpret_cast<uint32_t*>(gate), 1, __ATOMIC_RELEASE); }

  bool Step() { return server.session.session->Step(); }
  RoundWords& Words(uint64_t number) { return *server.session.segment->round_words(number); }

  ServerFixture server;
  FakeGpuContext& gpu;
  EnginePtr engine;
  GpuStream stream;
  GpuStream other_stream;
  GpuAddress gate = 0;
  specd_sequence sequence = 0;
  const uint32_t row = 0;
};

TEST_SUITE("unit") {
  TEST_CASE("rows, answer, next forward: each waits for the one before, and the CPU for none") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      StreamFixture f(device_index);
      f.CloseGate(f.stream);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      specd_verdict verdict;
      REQUIRE(specd_get_verdict(f.engine.get(), &verdict) == SPECD_OK);
      uint64_t seen = 0;
      REQUIRE(f.gpu.Copy(f.stream, &seen, reinterpret_cast<void*>(verdict.device_address), 8).ok());
      // The forward is not done: the daemon sees the round and no rows.
      CHECK_FALSE(f.Step());
      CHECK(f.server.session.session->channel().IsHeld());
      f.OpenGate();
      CHECK(Eventually([&] { return AreRowsReady(f.Words(1), 1); }));
      CHECK(f.gpu.Query(f.stream).code() == kGpuNotReady);
      f.server.session.backend->script = {Confirm(0, {5})};
      REQUIRE(f.Step());
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      CHECK(seen == verdict.answered);
      CHECK(verdict.answered == 1 << 8);
      specd_completion done;
      REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
      CHECK(done.results[0].tokens[0] == 5);
      CHECK(f.gpu.violations().empty());
    }
  }

  TEST_CASE("a stream that waits in vain is released, and the late daemon confirms nothing") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      StreamFixture f(device_index, 1);
      REQUIRE(f.Submit(f.stream, 7) == SPECD_OK);
      specd_verdict verdict;
      REQUIRE(specd_get_verdict(f.engine.get(), &verdict) == SPECD_OK);
      uint64_t seen = 0;
      REQUIRE(f.gpu.Copy(f.stream, &seen, reinterpret_cast<void*>(verdict.device_address), 8).ok());
      // The engine's CPU waits for its stream and calls nobody.
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      CHECK(seen != verdict.answered);
      specd_completion done;
      REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
      CHECK(done.round_id == 7);
      REQUIRE(done.num_results == 1);
      CHECK(done.results[0].sequence == f.sequence);
      CHECK(done.results[0].status == SPECD_STATUS_ABORTED);
      CHECK(done.results[0].num_kept == 0);
      // Its slot is in quarantine; the other one is not.
      REQUIRE(f.SubmitPlain(8) == SPECD_OK);
      CHECK(f.SubmitPlain(9) == SPECD_FULL);
      REQUIRE(f.Step());
      CHECK(f.server.session.backend->seen.empty());
      CHECK(f.SubmitPlain(9) == SPECD_OK);
      f.server.session.backend->script = {Confirm(0, {5}), Confirm(0, {6})};
      REQUIRE(f.Step());
      REQUIRE(f.Step());
      REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
      CHECK(done.round_id == 8);
      CHECK(done.results[0].total_kept == 1);
      REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
      CHECK(done.round_id == 9);
      CHECK(done.results[0].total_kept == 2);
    }
  }

  TEST_CASE("a daemon that ends releases the stream, and its rounds are aborted") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      StreamFixture f(device_index);
      REQUIRE(f.Submit(f.stream, 7) == SPECD_OK);
      REQUIRE(f.server.session.session->End());
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      specd_completion done;
      REQUIRE(specd_poll(f.engine.get(), &done, -1) == SPECD_OK);
      CHECK(done.round_id == 7);
      CHECK(done.results[0].status == SPECD_STATUS_ABORTED);
      CHECK(specd_poll(f.engine.get(), &done, -1) < 0);
      CHECK(f.Submit(f.stream) < 0);
    }
  }

  TEST_CASE("close releases the stream, waits until it has passed, and gives the words back") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      const FakeCudaCounts before = CountFakeCuda();
      StreamFixture f(device_index);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      CHECK(CountFakeCuda().registered == before.registered + 1);
      f.engine.reset();
      CHECK(CountFakeCuda().unregistered == before.unregistered + 1);
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
    }
  }

  TEST_CASE("where a stream has not come to its wait, the words outlive the engine") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      const FakeCudaCounts before = CountFakeCuda();
      StreamFixture f(device_index, StreamFixture::kForeverMs, 1000);
      f.CloseGate(f.stream);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      f.engine.reset();
      CHECK(CountFakeCuda().unregistered == before.unregistered);
      // Now it writes ready, waits, writes passed: into memory that is there.
      f.OpenGate();
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      CHECK(f.Words(1).passed.load() == 1);
    }
  }

  TEST_CASE("a slot is not given to a second stream before the first has passed it") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      StreamFixture f(device_index);
      f.Words(1).passed.store((uint64_t{1} << 32) + 1);  // what so many rounds ago would have left
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      CHECK_FALSE(HasPassed(f.Words(1), 1));
      REQUIRE(f.SubmitPlain() == SPECD_OK);
      REQUIRE(Eventually([&] { return AreRowsReady(f.Words(1), 1); }));
      REQUIRE(f.gpu.Query(f.stream).code() == kGpuNotReady);
      // The answer is there, but nothing has let the stream go on yet: as if the device were slow.
      DaemonChannel& channel = f.server.session.session->channel();
      SubmissionCopy copy(f.server.session.session->options().limits);
      REQUIRE(channel.Take(&copy, 0));
      const SequenceResult result;
      f.Words(1).passed.store(0);
      channel.Complete(copy, std::span<const SequenceResult>(&result, 1), 0);
      // The server's thread uses the channel behind this, under the lock that this goes through.
      (void)f.server.session.session->counters();
      specd_completion done;
      REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      f.Words(1).passed.store(0);
      CHECK(f.Submit(f.other_stream) == SPECD_FULL);
      f.Words(1).passed.store(1);
      CHECK(f.Submit(f.other_stream) == SPECD_OK);
    }
  }

  TEST_CASE(
      "streams whose rows come in another order than their rounds are answered all the same") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      StreamFixture f(device_index);
      f.CloseGate(f.stream);
      REQUIRE(f.Submit(f.stream, 1) == SPECD_OK);
      REQUIRE(f.Submit(f.other_stream, 2) == SPECD_OK);
      // The second one stands at its wait, whatever that is, before the first one's rows are there.
      REQUIRE(Eventually([&] { return f.gpu.IsHeld(f.other_stream); }));
      REQUIRE_FALSE(f.Step());
      f.OpenGate();
      f.server.session.backend->script = {Confirm(0, {5}), Confirm(0, {6})};
      REQUIRE(Eventually([&] { return f.Step(); }));
      REQUIRE(Eventually([&] { return f.Step(); }));
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      REQUIRE(f.gpu.Synchronize(f.other_stream).ok());
      for (const uint64_t round_id : {1, 2}) {
        specd_completion done;
        REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
        CHECK(done.round_id == round_id);
        CHECK(done.results[0].status == SPECD_STATUS_OK);
        CHECK(done.results[0].total_kept == round_id);
      }
      CHECK(f.gpu.violations().empty());
    }
  }

  TEST_CASE("a device that has no road to rounds on streams says the remedy, and harms nothing") {
    for (const char* call : {"CreateEvent", "WaitEvent", "LaunchHostFunction"}) {
      CAPTURE(call);
      StreamFixture f(kWithoutWords);
      f.gpu.Inject({call, 0, kGpuNotSupported, false});
      CHECK(f.Submit(f.stream) == SPECD_ERROR_UNSUPPORTED);
      CHECK(LastErrorHas("specd_submit"));
      f.server.session.backend->script = {Confirm(0, {5})};
      REQUIRE(f.SubmitPlain() == SPECD_OK);
      REQUIRE(f.Step());
      specd_completion done;
      REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
      CHECK(done.results[0].status == SPECD_STATUS_OK);
      // Nothing of the round holds the stream.
      CHECK(Eventually([&] { return f.gpu.Query(f.stream).ok(); }));
      CHECK(f.Submit(f.stream) == SPECD_OK);
    }
  }

  TEST_CASE("a round that a stream takes nothing of leaves its slot as it was") {
    // It made the slot look as if its last round had never passed: full for other streams for good.
    for (const size_t device_index : kDevices) {
      for (const bool is_slow : {false, true}) {
        CAPTURE(device_index);
        CAPTURE(is_slow);
        const FakeCudaCounts before = CountFakeCuda();
        StreamFixture f(device_index);
        const auto answer = [&] {
          f.server.session.backend->script = {Confirm(0, {5})};
          REQUIRE(Eventually([&] { return f.Step(); }));
          specd_completion done;
          REQUIRE(specd_poll(f.engine.get(), &done, -1) == SPECD_OK);
          CHECK(done.results[0].status == SPECD_STATUS_OK);
        };
        // A lap, so that the next round's slot had one before.
        for (int round = 0; round < 2; ++round) {
          REQUIRE(f.Submit(f.stream) == SPECD_OK);
          answer();
        }
        REQUIRE(f.gpu.Synchronize(f.stream).ok());
        // As if the stream had been let go, and had not come to its last write yet.
        if (is_slow) f.Words(1).passed.store(0);
        f.gpu.Inject({device_index == kWithoutWords ? "LaunchHostFunction" : "WriteValue", 0,
                      kGpuUnknown, false});
        CHECK(f.Submit(f.stream) == SPECD_ERROR_INVALID_ARGUMENT);
        for (int round = 0; round < 2; ++round) {
          REQUIRE(f.SubmitPlain() == SPECD_OK);
          answer();
        }
        if (is_slow) {
          CHECK(f.Submit(f.other_stream) == SPECD_FULL);
          f.Words(1).passed.store(1);
        }
        CHECK(f.Submit(f.other_stream) == SPECD_OK);
        answer();
        f.engine.reset();
        CHECK(CountFakeCuda().unregistered == before.unregistered + 1);
      }
    }
  }

  TEST_CASE("a wait that cannot be enqueued ends rounds on streams, and no others") {
    struct Fault {
      size_t device_index;
      const char* call;
      int after;
    };
    // The second write of a round is the one behind the wait.
    const Fault faults[] = {
        {0, "WaitValue", 0}, {0, "WriteValue", 1}, {kWithoutWords, "RecordEvent", 0}};
    for (const Fault& fault : faults) {
      CAPTURE(fault.call);
      StreamFixture f(fault.device_index);
      f.gpu.Inject({fault.call, fault.after, kGpuUnknown, false});
      CHECK(f.Submit(f.stream) < 0);
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      CHECK(f.Submit(f.stream) == SPECD_ERROR_STATE);
      f.server.session.backend->script = {Confirm(0, {5})};
      REQUIRE(f.SubmitPlain() == SPECD_OK);
      REQUIRE(f.Step());
      specd_completion done;
      REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
      CHECK(done.results[0].status == SPECD_STATUS_OK);
      CHECK(done.results[0].num_kept == 1);
    }
  }

  TEST_CASE("an engine is told how it shares the GPU with its daemon") {
    specd_sharing sharing;
    {
      StreamFixture f;
      REQUIRE(specd_get_sharing(f.engine.get(), &sharing) == SPECD_OK);
      CHECK(sharing.mode == SPECD_SHARING_NONE);  // the fixture's daemon has no device
    }
    for (const size_t device_index : kDevices) {
      StreamFixture f(device_index);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      REQUIRE(specd_get_sharing(f.engine.get(), &sharing) == SPECD_OK);
      CHECK(sharing.mode == SPECD_SHARING_NONE);
      const bool is_told = std::string(sharing.text).find("CPU thread") != std::string::npos;
      CHECK(is_told == (device_index == kWithoutWords));
    }
    const ServerFixture on_cuda("cuda", "none");
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = 8;
    const EnginePtr engine = OpenEngine(on_cuda.uri, options);
    REQUIRE(specd_get_sharing(engine.get(), &sharing) == SPECD_OK);
    CHECK(sharing.mode == SPECD_SHARING_TIME_SLICED);
    CHECK(std::string(sharing.text).find("time-sliced") != std::string::npos);
    CHECK(specd_get_sharing(engine.get(), nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
  }

  TEST_CASE("a stream of another device than the first is refused, and nothing else is harmed") {
    // Where the host waits, it broke rounds on streams for good: its event is the first device's.
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      StreamFixture f(device_index);
      const size_t other_index = (device_index + 1) % kNumFakeCudaDevices;
      const auto answer = [&] {
        f.server.session.backend->script = {Confirm(0, {5})};
        REQUIRE(Eventually([&] { return f.Step(); }));
        specd_completion done;
        REQUIRE(specd_poll(f.engine.get(), &done, -1) == SPECD_OK);
        CHECK(done.results[0].status == SPECD_STATUS_OK);
      };
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      answer();
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
      answer();
    }
  }

  TEST_CASE("what cannot be a round on a stream is refused by name") {
    StreamFixture f;
    specd_verdict verdict;
    CHECK(specd_get_verdict(f.engine.get(), &verdict) == SPECD_ERROR_STATE);
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

    specd_options options;
    specd_options_init(&options);
    options.vocab_size = 8;
    const EnginePtr embedded = OpenEngine("embedded:cpu", options);
    const specd_draft part = ChainDraft(f.sequence, 0, nullptr, &f.row);
    CHECK(specd_submit_on_stream(embedded.get(), 1, &part, 1, f.stream.handle) ==
          SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("embedded"));
    options.stream_timeout_ms = 3'600'001;
    specd_engine* refused = nullptr;
    CHECK(specd_open("embedded:cpu", &options, &refused) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("stream_timeout_ms"));
  }
}

}  // namespace
}  // namespace specd
