// Rounds on a CUDA stream in the daemon. A session takes them when their rows are ready, and
// confirms them only while the CUDA stream waits. The loop serves other engines meanwhile.
#include <absl/time/clock.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <thread>
#include <vector>

#include "daemon/server/verify_loop.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/round_words.h"
#include "kernels/core/slot_output.h"
#include "tests/daemon/session/hooked_session.h"
#include "tests/support/eventually.h"
#include "tests/support/sealed_memory.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

VerifyLoop::Options Quiet() {
  return {0, [](std::string_view) {}, [](Session&, ChannelFault) {}};
}

// The k-th submission of a session has number k.
PushResult SubmitOnStream(SessionFixture* f, SequenceHandle sequence, uint64_t round_id = 1) {
  SequenceInput draft;
  draft.sequence = sequence;
  draft.draft = {.num_nodes = 3, .tokens = f->tokens, .target_rows = f->rows};
  f->engine->ArmWords();
  return f->engine->SubmitOnStream(round_id, {&draft, 1}, 0);
}

RoundWords& WordsOf(const SessionFixture& f, uint64_t number) {
  return *f.segment->round_words(number);
}

void MakeReady(const SessionFixture& f, uint64_t number) { WordsOf(f, number).ready.store(number); }

void ReleaseStream(const SessionFixture& f, uint64_t number) {
  Decide(&WordsOf(f, number), number, RoundEnd::kAborted);
  Release(&WordsOf(f, number), number);
}

// Every slot output has the rules of next tokens. These are in the order of SlotField.
constexpr int kSlotRoles[] = {SPECD_NEXT_TOKEN,   SPECD_KEPT_TOKENS, SPECD_NUM_KEPT,
                              SPECD_NUM_ACCEPTED, SPECD_TOTAL_KEPT,  SPECD_ACCEPTED_PATH,
                              SPECD_PREDICTS,     SPECD_ACCEPT_INDEX};
constexpr int kNumSlotRoles = 8;
constexpr int kNumReplicas = 2;
constexpr int kOutputBytes = 256;  // from one output of SlotOutputSession to the next

// Each replica of each slot output is there once, where SlotOutputSession bound it.
void CheckEachOnce(std::vector<SlotOutput> outputs) {
  REQUIRE(outputs.size() == kNumReplicas * kNumSlotRoles);
  const auto address = [](const SlotOutput& output) { return static_cast<char*>(output.data); };
  std::sort(outputs.begin(), outputs.end(),
            [&](const SlotOutput& a, const SlotOutput& b) { return address(a) < address(b); });
  for (int i = 0; i < kNumReplicas * kNumSlotRoles; ++i) {
    CAPTURE(i);
    CHECK(address(outputs[i]) - address(outputs[0]) == i * kOutputBytes);
    CHECK(outputs[i].field == static_cast<SlotField>(i % kNumSlotRoles));
  }
}

// A session with the engine's slot outputs, and a sequence whose next round has two tokens.
struct SlotOutputSession : SessionFixture {
  SlotOutputSession() : SessionFixture(false) {
    const auto region = session->RegisterRegion(SealedMemory(4096), 4096);
    REQUIRE(region.ok());
    TensorSpec spec;
    spec.dtype = SPECD_INT32;
    spec.num_rows = kLimits.max_sequences;
    for (int replica = 0; replica < kNumReplicas; ++replica) {
      for (const int role : kSlotRoles) {
        REQUIRE(session->Bind(static_cast<TensorRole>(role + replica), *region, spec).ok());
        spec.offset_bytes += kOutputBytes;
      }
    }
    sequence = Open("r");
    backend->script = {Confirm(1, {1, 5})};
    backend->inspect = [this](const RoundBatch& batch) {
      held_back.push_back(batch.num_slot_outputs == 0);
    };
    backend->write_next = [this](const RoundBatch& batch) {
      CheckEachOnce({batch.slot_outputs, batch.slot_outputs + batch.num_slot_outputs});
      ++num_written;
      status_seen = WordsOf(*this, 1).status.load();
      done_seen = WordsOf(*this, 1).done.load();
      return write_status;
    };
  }

  SequenceHandle sequence = 0;
  std::vector<bool> held_back;  // for each round: the backend was given no slot outputs
  int num_written = 0;          // rounds whose slot outputs were written by themselves
  uint64_t status_seen = 0;     // at that time
  uint64_t done_seen = 0;
  absl::Status write_status;
};

TEST_SUITE("unit") {
  TEST_CASE("a session does not look at a round before its rows are ready") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    REQUIRE(SubmitOnStream(&f, s) == PushResult::kOk);
    CHECK_FALSE(StepSession(f.session));
    CHECK(f.backend->seen.empty());
    f.backend->script = {Confirm(1, {1, 5})};
    MakeReady(f, 1);
    CHECK(StepSession(f.session));
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].num_kept == 2);
    CHECK(WordsOf(f, 1).status.load() == PackRoundEnd(1, RoundEnd::kAnswered));
    CHECK(WordsOf(f, 1).done.load() == 1);
  }

  TEST_CASE("a round whose stream is released while it is verified confirms nothing") {
    HookedSession f;
    const SequenceHandle s = f.Open("r");
    f.Events();
    f.hooked->hook = [&](const RoundBatch&) { ReleaseStream(f, 1); };
    f.backend->script = {Confirm(1, {1, 5}), Confirm(0, {6})};
    REQUIRE(SubmitOnStream(&f, s, 1) == PushResult::kOk);
    MakeReady(f, 1);
    REQUIRE(StepSession(f.session));
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kAborted);
    CHECK(done.results[0].num_kept == 0);
    CHECK(f.session->counters().kept == 0);
    CHECK(f.Events().empty());  // the text side hears nothing of it
    CHECK(f.engine->ReadState(SlotOf(s)).finish_reason == SPECD_FINISH_NONE);
    // Submitted again, the round continues at the sequence's position.
    f.hooked->hook = nullptr;
    REQUIRE(SubmitOnStream(&f, s, 2) == PushResult::kOk);
    MakeReady(f, 2);
    REQUIRE(StepSession(f.session));
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].total_kept == 1);
    CHECK(done.results[0].tokens[0] == 6);
    REQUIRE(f.backend->seen.size() == 2);
    CHECK(f.backend->seen[1].first_position == 0);
  }

  TEST_CASE("slot outputs are written between the claim and the release of the stream") {
    SlotOutputSession f;
    REQUIRE(SubmitOnStream(&f, f.sequence) == PushResult::kOk);
    MakeReady(f, 1);
    REQUIRE(StepSession(f.session));
    CHECK(f.held_back == std::vector<bool>{true});
    CHECK(f.num_written == 1);
    CHECK(f.status_seen == PackRoundEnd(1, RoundEnd::kAnswered));
    CHECK(f.done_seen == 0);
    CHECK(WordsOf(f, 1).done.load() == 1);
    // A round without a CUDA stream cannot be called off, but a page of its rows may be missing.
    f.backend->script = {Confirm(0, {6})};
    REQUIRE(f.Submit({f.sequence}) == PushResult::kOk);
    REQUIRE(StepSession(f.session));
    CHECK(f.held_back == std::vector<bool>{true, true});
    CHECK(f.num_written == 2);
  }

  TEST_CASE("a late daemon leaves slot outputs to the engine whose stream was released") {
    SlotOutputSession f;
    f.backend->inspect = [&](const RoundBatch& batch) {
      CHECK(batch.num_slot_outputs == 0);
      ReleaseStream(f, 1);
    };
    REQUIRE(SubmitOnStream(&f, f.sequence) == PushResult::kOk);
    MakeReady(f, 1);
    REQUIRE(StepSession(f.session));
    CHECK(f.num_written == 0);
  }

  TEST_CASE("where slot outputs cannot be written, what was claimed has failed") {
    SlotOutputSession f;
    f.write_status = absl::InternalError("sticky");
    REQUIRE(SubmitOnStream(&f, f.sequence) == PushResult::kOk);
    MakeReady(f, 1);
    REQUIRE(StepSession(f.session));
    CHECK(f.num_written == 1);
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kDeviceError);
    CHECK(done.results[0].num_kept == 0);
    CHECK(WordsOf(f, 1).status.load() == PackRoundEnd(1, RoundEnd::kFailed));
    CHECK(WordsOf(f, 1).done.load() == 1);
    CHECK(f.session->device_failed());
    CHECK(f.session->WhyDeviceFailed() == "sticky");
  }

  TEST_CASE("rows of a round that was aborted before it was taken are not looked at") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    REQUIRE(SubmitOnStream(&f, s) == PushResult::kOk);
    MakeReady(f, 1);
    ReleaseStream(f, 1);
    REQUIRE(StepSession(f.session));
    CHECK(f.backend->seen.empty());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kAborted);
    CHECK(done.results[0].sequence == s);
  }

  TEST_CASE("a stream is released by a device error and by a round with nothing to commit") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    REQUIRE(SubmitOnStream(&f, s + 1) == PushResult::kOk);
    MakeReady(f, 1);
    REQUIRE(StepSession(f.session));
    CHECK(WordsOf(f, 1).status.load() == PackRoundEnd(1, RoundEnd::kAnswered));
    CHECK(WordsOf(f, 1).done.load() == 1);
    f.backend->next_status = absl::InternalError("sticky");
    REQUIRE(SubmitOnStream(&f, s) == PushResult::kOk);
    MakeReady(f, 2);
    REQUIRE(StepSession(f.session));
    CHECK(WordsOf(f, 2).status.load() == PackRoundEnd(2, RoundEnd::kFailed));
    CHECK(WordsOf(f, 2).done.load() == 2);
    CHECK(f.session->WhyDeviceFailed() == "sticky");
  }

  TEST_CASE("the end of a session releases the streams that wait for it") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r");
    REQUIRE(SubmitOnStream(&f, s) == PushResult::kOk);
    REQUIRE(f.session->End());
    CHECK(IsAborted(WordsOf(f, 1), 1));
    CHECK(IsReleased(WordsOf(f, 1), 1));
    MakeReady(f, 1);
    CHECK_FALSE(StepSession(f.session));
    CHECK(f.backend->seen.empty());
  }

  TEST_CASE("a session that is never ready holds up nobody") {
    SessionFixture never;
    SessionFixture other;
    SessionList list;
    list.Add(never.session);
    list.Add(other.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle sn = never.Open("never");
    const SequenceHandle so = other.Open("other");
    REQUIRE(SubmitOnStream(&never, sn) == PushResult::kOk);
    other.backend->script.assign(20, Confirm(0, {1}));
    std::thread thread([&] { loop.Run(); });
    for (uint32_t round = 1; round <= 20; ++round) {
      REQUIRE(other.Submit({so}) == PushResult::kOk);
      CompletionView done;
      while (!other.engine->Poll(&done)) {
        other.engine->WaitCompletion({0, absl::InfiniteDuration()});
      }
      CHECK(done.results[0].total_kept == round);
      other.Events();
    }
    CHECK(never.backend->seen.empty());
    // The engine dies; then no round is held any more.
    REQUIRE(never.session->End());
    CHECK(Eventually([&] {
      return other.segment->page()->submission_bell.waiters.load() == 1 &&
             !never.session->channel().HasSubmission();
    }));
    loop.Stop();
    thread.join();
    CHECK(never.backend->seen.empty());
  }

  TEST_CASE("rows that become ready are found without a bell") {
    SessionFixture f;
    SessionList list;
    list.Add(f.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle s = f.Open("r");
    f.backend->script = {Confirm(0, {1})};
    REQUIRE(SubmitOnStream(&f, s) == PushResult::kOk);
    std::thread thread([&] { loop.Run(); });
    // The loop sleeps between two looks: it does not spin.
    const std::atomic<uint32_t>& sleepers = f.segment->page()->submission_bell.waiters;
    CHECK(Eventually([&] { return sleepers.load() == 1; }));
    MakeReady(f, 1);
    CompletionView done;
    CHECK(Eventually([&] { return f.engine->Poll(&done); }));
    loop.Stop();
    thread.join();
  }

  TEST_CASE("a round that is submitted while the loop sleeps is found though it is held") {
    SessionFixture f;
    SessionList list;
    list.Add(f.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle s = f.Open("r");
    f.backend->script = {Confirm(0, {1})};
    std::thread thread([&] { loop.Run(); });
    const std::atomic<uint32_t>& sleepers = f.segment->page()->submission_bell.waiters;
    CHECK(Eventually([&] { return sleepers.load() == 1; }));
    REQUIRE(SubmitOnStream(&f, s) == PushResult::kOk);
    MakeReady(f, 1);
    CompletionView done;
    CHECK(Eventually([&] { return f.engine->Poll(&done); }));
    loop.Stop();
    thread.join();
  }

  TEST_CASE("after Stop a held round gets a bounded time, and is taken if it becomes ready") {
    SessionFixture f;
    SessionList list;
    list.Add(f.session);
    const SequenceHandle s = f.Open("r");
    REQUIRE(SubmitOnStream(&f, s) == PushResult::kOk);
    SUBCASE("it never does") {
      VerifyLoop loop(&list, Quiet());
      loop.Stop();
      loop.Run();
      CHECK(f.backend->seen.empty());
    }
    SUBCASE("it does") {
      f.backend->script = {Confirm(0, {1})};
      VerifyLoop loop(&list, Quiet());
      loop.Stop();
      std::thread thread([&] { loop.Run(); });
      MakeReady(f, 1);
      thread.join();
      CHECK(f.backend->seen.size() == 1);
    }
  }

  TEST_CASE("a round that becomes ready at any moment after Stop is taken") {
    // The loop looks at these between its two looks at the held round.
    std::array<SessionFixture, 64> idle;
    for (int wait = 0; wait < 400; ++wait) {
      SessionFixture f;
      SessionList list;
      list.Add(f.session);
      for (const SessionFixture& other : idle) list.Add(other.session);
      const SequenceHandle s = f.Open("r");
      REQUIRE(SubmitOnStream(&f, s) == PushResult::kOk);
      f.backend->script = {Confirm(0, {1})};
      VerifyLoop loop(&list, Quiet());
      loop.Stop();
      std::atomic<bool> begun = false;
      std::thread thread([&] {
        begun = true;
        loop.Run();
      });
      while (!begun) {
      }
      const int64_t until = absl::GetCurrentTimeNanos() + wait * 50;
      while (absl::GetCurrentTimeNanos() < until) {
      }
      MakeReady(f, 1);
      thread.join();
      CHECK(f.backend->seen.size() == 1);
    }
  }
}

}  // namespace
}  // namespace specd
