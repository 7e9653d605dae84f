// specd_submit_on_stream over a pretended driver: the enqueued operations and their order. No CUDA
// stream touches words that no longer exist.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/segment/round_words.h"
#include "tests/daemon/client/cuda_stream_fixture.h"
#include "tests/support/c_drafts.h"

namespace specd {
namespace {

using test::CudaStreamFixture;
using test::EnginePtr;
using test::kDevices;
using test::kWithoutWords;
using test::OpenEngine;
using test::ServerFixture;

// The first round is behind the closed gate. Its rows wait for the gate, and the CUDA stream waits
// for the answers.
void AnswerBehindTheGate(CudaStreamFixture* f, std::deque<ScriptedOutcome> answers) {
  // The forward is not done: the daemon sees the round and no rows.
  CHECK_FALSE(f->Step());
  CHECK(f->server.session.session->channel().IsHeld());
  f->OpenGate();
  CHECK(Eventually([&] { return AreRowsReady(f->Words(1), 1); }));
  CHECK(f->gpu.Query(f->stream).code() == kGpuNotReady);
  f->server.session.backend->script = std::move(answers);
  REQUIRE(f->Step());
  REQUIRE(f->gpu.Synchronize(f->stream).ok());
}

TEST_SUITE("unit") {
  TEST_CASE("rows, answer, next forward: each waits for the one before, and the CPU for none") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      CudaStreamFixture f(device_index);
      f.CloseGate(f.stream);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      specd_round_end end;
      REQUIRE(specd_get_round_end(f.engine.get(), &end) == SPECD_OK);
      uint64_t seen = 0;
      REQUIRE(f.gpu.Copy(f.stream, &seen, reinterpret_cast<void*>(end.device_address), 8).ok());
      AnswerBehindTheGate(&f, {Confirm(0, {5})});
      CHECK(seen == end.answered);
      CHECK(end.answered == 1 << 8);
      specd_completion done = SizedCompletion();
      REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
      CHECK(done.results[0].tokens[0] == 5);
      CHECK(f.gpu.violations().empty());
    }
  }

  TEST_CASE("a batch waits on a CUDA stream as drafts do, and the CPU does not") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      CudaStreamFixture f(device_index);
      const specd_sequence sequences[] = {f.sequence, f.Open("s")};
      const int32_t drafts[] = {1, 2};
      const uint32_t offsets[] = {0, 0, 2};
      specd_batch batch;
      specd_batch_init(&batch);
      batch.num_sequences = 2;
      batch.sequences = sequences;
      batch.tokens = drafts;
      batch.draft_offsets = offsets;
      f.CloseGate(f.stream);
      REQUIRE(specd_submit_batch_on_stream(f.engine.get(), 3, &batch, f.stream.handle) == SPECD_OK);
      specd_round_end end;
      REQUIRE(specd_get_round_end(f.engine.get(), &end) == SPECD_OK);
      uint64_t seen = 0;
      REQUIRE(f.gpu.Copy(f.stream, &seen, reinterpret_cast<void*>(end.device_address), 8).ok());
      AnswerBehindTheGate(&f, {Confirm(0, {5}), Confirm(2, {1, 2, 6})});
      CHECK(seen == end.answered);
      CHECK(end.answered == 1 << 8);
      const std::vector<Task>& tasks = f.server.session.backend->seen;
      REQUIRE(tasks.size() == 2);
      CHECK(tasks[0].draft.num_nodes == 0);
      CHECK(tasks[1].draft.num_nodes == 2);
      std::array<int32_t, 6> tokens{};
      std::array<uint32_t, 2> num_accepted{};
      specd_batch_results results;
      specd_batch_results_init(&results);
      results.max_results = 2;
      results.tokens_stride = 3;
      results.tokens = tokens.data();
      results.num_accepted = num_accepted.data();
      REQUIRE(specd_poll_batch(f.engine.get(), &results, 0) == SPECD_OK);
      CHECK(results.round_id == 3);
      CHECK(results.num_results == 2);
      CHECK(tokens == std::array<int32_t, 6>{5, -1, -1, 1, 2, 6});
      CHECK(num_accepted == std::array<uint32_t, 2>{0, 2});
      CHECK(f.gpu.violations().empty());
    }
  }

  TEST_CASE("a stream that waits in vain is released, and the late daemon confirms nothing") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      CudaStreamFixture f(device_index, 1);
      REQUIRE(f.Submit(f.stream, 7) == SPECD_OK);
      specd_round_end end;
      REQUIRE(specd_get_round_end(f.engine.get(), &end) == SPECD_OK);
      uint64_t seen = 0;
      REQUIRE(f.gpu.Copy(f.stream, &seen, reinterpret_cast<void*>(end.device_address), 8).ok());
      // The engine's CPU waits for its CUDA stream and calls no function of specd.
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      CHECK(seen != end.answered);
      specd_completion done = SizedCompletion();
      REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
      CHECK(done.round_id == 7);
      REQUIRE(done.num_results == 1);
      CHECK(done.results[0].sequence == f.sequence);
      CHECK(done.results[0].status == SPECD_STATUS_ABORTED);
      CHECK(done.results[0].num_kept == 0);
      // The round's ring entry is in quarantine; the other entry is not.
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
      CudaStreamFixture f(device_index);
      REQUIRE(f.Submit(f.stream, 7) == SPECD_OK);
      REQUIRE(f.server.session.session->End());
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      specd_completion done = SizedCompletion();
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
      CudaStreamFixture f(device_index);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      CHECK(CountFakeCuda().registered == before.registered + 1);
      f.engine.reset();
      CHECK(CountFakeCuda().unregistered == before.unregistered + 1);
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
    }
  }

  TEST_CASE("close leaves a claimed round to the daemon for half of its time") {
    for (const bool is_answered : {true, false}) {
      CAPTURE(is_answered);
      CudaStreamFixture f(0, CudaStreamFixture::kForeverMs, 2000);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      RoundWords& words = f.Words(1);
      REQUIRE(Eventually([&] { return AreRowsReady(words, 1); }));
      REQUIRE(Decide(&words, 1, RoundEnd::kAnswered) == RoundEnd::kAnswered);
      const auto begin = std::chrono::steady_clock::now();
      std::thread daemon([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        CHECK_FALSE(IsReleased(words, 1));
        if (is_answered) Release(&words, 1);
      });
      f.engine.reset();
      const auto took = std::chrono::steady_clock::now() - begin;
      daemon.join();
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      CHECK(words.status.load() ==
            PackRoundEnd(1, is_answered ? RoundEnd::kAnswered : RoundEnd::kAborted));
      CHECK(took >= std::chrono::milliseconds(is_answered ? 300 : 1000));
    }
  }

  TEST_CASE("where a stream has not come to its wait, the words outlive the engine") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      const FakeCudaCounts before = CountFakeCuda();
      CudaStreamFixture f(device_index, CudaStreamFixture::kForeverMs, 1000);
      f.CloseGate(f.stream);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      f.engine.reset();
      CHECK(CountFakeCuda().unregistered == before.unregistered);
      // Now the CUDA stream writes ready, waits, and writes passed, into memory that still exists.
      f.OpenGate();
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      CHECK(f.Words(1).passed.load() == 1);
    }
  }

  TEST_CASE("a slot is not given to a second stream before the first has passed it") {
    for (const size_t device_index : kDevices) {
      CAPTURE(device_index);
      CudaStreamFixture f(device_index);
      // The value that round 1 of 2^32 rounds ago would have left.
      f.Words(1).passed.store((uint64_t{1} << 32) + 1);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      CHECK_FALSE(HasPassed(f.Words(1), 1));
      REQUIRE(f.SubmitPlain() == SPECD_OK);
      REQUIRE(Eventually([&] { return AreRowsReady(f.Words(1), 1); }));
      REQUIRE(f.gpu.Query(f.stream).code() == kGpuNotReady);
      // The answer has come, but the CUDA stream has not continued yet, as on a slow device.
      DaemonChannel& channel = f.server.session.session->channel();
      SubmissionCopy copy(f.server.session.session->options().limits);
      REQUIRE(channel.Take(&copy, 0));
      const SequenceResult result;
      f.Words(1).passed.store(0);
      channel.Complete(copy, std::span<const SequenceResult>(&result, 1), 0);
      // The server's thread uses the channel after this, under the lock that this call takes.
      CHECK_FALSE(f.server.session.session->AbortSequence({}).ok());
      specd_completion done = SizedCompletion();
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
      CudaStreamFixture f(device_index);
      f.CloseGate(f.stream);
      REQUIRE(f.Submit(f.stream, 1) == SPECD_OK);
      REQUIRE(f.Submit(f.other_stream, 2) == SPECD_OK);
      // The second CUDA stream is at its wait, of either kind, before the first one's rows are
      // ready.
      REQUIRE(Eventually([&] { return f.gpu.IsHeld(f.other_stream); }));
      REQUIRE_FALSE(f.Step());
      f.OpenGate();
      f.server.session.backend->script = {Confirm(0, {5}), Confirm(0, {6})};
      REQUIRE(Eventually([&] { return f.Step(); }));
      REQUIRE(Eventually([&] { return f.Step(); }));
      REQUIRE(f.gpu.Synchronize(f.stream).ok());
      REQUIRE(f.gpu.Synchronize(f.other_stream).ok());
      for (const uint64_t round_id : {1, 2}) {
        specd_completion done = SizedCompletion();
        REQUIRE(specd_poll(f.engine.get(), &done, 0) == SPECD_OK);
        CHECK(done.round_id == round_id);
        CHECK(done.results[0].status == SPECD_STATUS_OK);
        CHECK(done.results[0].total_kept == round_id);
      }
      CHECK(f.gpu.violations().empty());
    }
  }

  TEST_CASE("an engine is told how it shares the GPU with its daemon") {
    specd_sharing sharing;
    {
      CudaStreamFixture f;
      REQUIRE(specd_get_sharing(f.engine.get(), &sharing) == SPECD_OK);
      CHECK(sharing.mode == SPECD_SHARING_NONE);  // the fixture's daemon has no device
    }
    for (const size_t device_index : kDevices) {
      CudaStreamFixture f(device_index);
      REQUIRE(f.Submit(f.stream) == SPECD_OK);
      REQUIRE(specd_get_sharing(f.engine.get(), &sharing) == SPECD_OK);
      CHECK(sharing.mode == SPECD_SHARING_NONE);
      const bool is_told = std::string(sharing.text).find("CPU thread") != std::string::npos;
      CHECK(is_told == (device_index == kWithoutWords));
    }
    const ServerFixture on_cuda("GPU-0", "none");
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = 8;
    const EnginePtr engine = OpenEngine(on_cuda.uri, options);
    REQUIRE(specd_get_sharing(engine.get(), &sharing) == SPECD_OK);
    CHECK(sharing.mode == SPECD_SHARING_TIME_SLICED);
    CHECK(std::string(sharing.text).find("time-sliced") != std::string::npos);
    CHECK(specd_get_sharing(engine.get(), nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace specd
