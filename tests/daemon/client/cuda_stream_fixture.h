// CudaStreamFixture gives tests an engine that is attached to a scripted session, and two CUDA
// streams of a pretended device for its rounds.
#pragma once

#include <doctest/doctest.h>

#include "ipc/segment/round_words.h"
#include "tests/daemon/server/server_fixture.h"
#include "tests/gpu/driver/fake_cuda.h"
#include "tests/support/c_drafts.h"
#include "tests/support/eventually.h"
#include "tests/support/session_steps.h"

namespace specd::test {

// Devices with words of 64 bits, with words of 32 bits, and with host functions in place of words.
inline constexpr size_t kDevices[] = {0, 1, 2};
inline constexpr size_t kWithoutWords = 2;

struct CudaStreamFixture {
  static constexpr uint32_t kForeverMs = 3'600'000;

  explicit CudaStreamFixture(size_t device_index = 0, uint32_t stream_timeout_ms = kForeverMs,
                             uint32_t timeout_ms = 30'000)
      : gpu(FakeCuda(device_index)) {
    specd_options options = ServerOptions();
    options.stream_timeout_ms = stream_timeout_ms;
    options.timeout_ms = timeout_ms;
    engine = OpenBoundEngine(server.uri, options);
    REQUIRE(gpu.CreateStream(&stream).ok());
    REQUIRE(gpu.CreateStream(&other_stream).ok());
    REQUIRE(gpu.Allocate(4096, &gate).ok());
    sequence = Open("r");
  }
  ~CudaStreamFixture() {
    OpenGate();
    engine.reset();
    (void)gpu.Synchronize(stream);
    (void)gpu.Synchronize(other_stream);
    (void)gpu.Free(gate);
  }

  specd_sequence Open(const char* name) {
    specd_params params;
    specd_params_init(&params);
    params.max_tokens = 100;
    specd_sequence_info info = Sized<specd_sequence_info>();
    REQUIRE(specd_open_sequence(engine.get(), name, &params, &info) == SPECD_OK);
    return info.sequence;
  }
  int Submit(GpuStream on, uint64_t round_id = 1) {
    const specd_draft part = ChainDraft(sequence, 0, nullptr, &row);
    return specd_submit_on_stream(engine.get(), round_id, &part, 1, on.handle);
  }
  int SubmitPlain(uint64_t round_id = 1) {
    const specd_draft part = ChainDraft(sequence, 0, nullptr, &row);
    return specd_submit(engine.get(), round_id, &part, 1);
  }
  // Operations that are enqueued later run after OpenGate, as after a slow forward.
  void CloseGate(GpuStream on) { REQUIRE(gpu.WaitValue(on, gate, GpuWord::k32, 1).ok()); }
  void OpenGate() { __atomic_store_n(reinterpret_cast<uint32_t*>(gate), 1, __ATOMIC_RELEASE); }

  // The daemon answers the oldest round with one token, and the engine takes it.
  void AnswerRound() {
    server.session.backend->script = {Confirm(0, {5})};
    REQUIRE(Eventually([&] { return Step(); }));
    specd_completion done = SizedCompletion();
    REQUIRE(specd_poll(engine.get(), &done, -1) == SPECD_OK);
    CHECK(done.results[0].status == SPECD_STATUS_OK);
    CHECK(done.results[0].num_kept == 1);
  }
  bool Step() { return StepSession(server.session.session); }
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

}  // namespace specd::test
