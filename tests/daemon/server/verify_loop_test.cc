#include "daemon/server/verify_loop.h"

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/daemon/session/hooked_session.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

VerifyLoop::Options Quiet() {
  return {0, [](std::string_view) {}, [](Session&, ChannelFault) {}};
}

// Runs rounds until no more events fit. The last round waits in the ring, with its answer in the
// script.
void FillEvents(SessionFixture* f) {
  const SequenceHandle s = f->Open("r", 1'000'000);
  CompletionView done;
  do {
    f->engine->Poll(&done);
    f->backend->script = {Confirm(0, {1})};
    REQUIRE(f->Submit({s}) == PushResult::kOk);
  } while (StepSession(f->session));
}

TEST_SUITE("unit") {
  TEST_CASE("every session with work gets one round per step") {
    SessionFixture a;
    SessionFixture b;
    SessionList list;
    list.Add(a.session);
    list.Add(b.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle sa = a.Open("a");
    const SequenceHandle sb = b.Open("b");
    a.backend->script = {Confirm(0, {1}), Confirm(0, {1})};
    b.backend->script = {Confirm(0, {2})};
    a.Submit({sa});
    a.Submit({sa});
    b.Submit({sb});
    CHECK(loop.Step());
    CHECK(a.backend->seen.size() == 1);
    CHECK(b.backend->seen.size() == 1);
    CHECK(loop.Step());
    CHECK(a.backend->seen.size() == 2);
    CHECK_FALSE(loop.Step());
  }

  TEST_CASE(
      "a running loop wakes for a submission, and Stop answers what was submitted before it") {
    SessionFixture f;
    SessionList list;
    VerifyLoop loop(&list, Quiet());
    // Written before the thread is made. The two mappings of the segment order everything else.
    // ThreadSanitizer does not see that, because to it the mappings are different memory.
    f.backend->script.assign(50, Confirm(0, {1}));
    std::thread thread([&] { loop.Run(); });
    list.Add(f.session);
    loop.Wake();
    const SequenceHandle s = f.Open("r");
    for (int round = 0; round < 50; ++round) {
      REQUIRE(f.Submit({s}) == PushResult::kOk);
      CompletionView done;
      while (!f.engine->Poll(&done)) f.engine->WaitCompletion({0, absl::InfiniteDuration()});
      CHECK(done.results[0].total_kept == static_cast<uint32_t>(round) + 1);
      f.Events();
    }
    loop.Stop();
    thread.join();
    f.backend->script = {Confirm(0, {1})};
    f.Submit({s});
    VerifyLoop second(&list, Quiet());
    second.Stop();
    second.Run();
    CompletionView done;
    CHECK(f.engine->Poll(&done));
  }

  TEST_CASE("the loop tells once that it has nothing to do, after work and only then") {
    SessionFixture f;
    SessionList list;
    list.Add(f.session);
    f.backend->script.assign(20, Confirm(0, {1}));
    std::atomic<uint32_t> told{0};
    std::atomic<uint64_t> queued{0};  // events that the last call found
    VerifyMeters meters;
    VerifyLoop::Options options = Quiet();
    options.meters = &meters;
    options.on_events = [&] {
      queued = f.session->num_queued_events();
      ++told;
    };
    VerifyLoop loop(&list, std::move(options));
    const SequenceHandle s = f.Open("r");
    f.Events();
    std::thread thread([&] { loop.Run(); });
    for (uint32_t round = 1; round <= 20; ++round) {
      REQUIRE(f.Submit({s}) == PushResult::kOk);
      while (told.load() < round) std::this_thread::yield();
      CHECK(queued.load() == 1);
      f.Events();
      CompletionView done;
      while (!f.engine->Poll(&done)) f.engine->WaitCompletion({0, absl::InfiniteDuration()});
      // A wake without work.
      const uint64_t beats = meters.beats.value();
      loop.Wake();
      while (meters.beats.value() == beats) std::this_thread::yield();
    }
    loop.Stop();
    thread.join();
    CHECK(told.load() == 20);
  }

  TEST_CASE("an engine that breaks its ring is closed, reported once, and disturbs nobody") {
    SessionFixture bad;
    SessionFixture good;
    SessionList list;
    list.Add(bad.session);
    list.Add(good.session);
    int faults = 0;
    VerifyLoop loop(&list, {0, [](std::string_view) {},
                            [&](Session& session, ChannelFault fault) {
                              CHECK(&session == bad.session.get());
                              CHECK(fault == ChannelFault::kSequence);
                              ++faults;
                            }});
    bad.Open("bad");
    const SequenceHandle s = good.Open("good");
    bad.segment->submission_entries()[0].sequence.store(99);
    good.backend->script = {Confirm(0, {1})};
    good.Submit({s});
    CHECK(loop.Step());
    CHECK_FALSE(loop.Step());
    CHECK(faults == 1);
    CHECK(good.backend->seen.size() == 1);
    CHECK(bad.engine->daemon_state() == DaemonState::kStopped);
  }

  TEST_CASE("a device fault is reported once") {
    SessionFixture f;
    SessionList list;
    list.Add(f.session);
    std::vector<std::string> failures;
    VerifyLoop loop(&list, {0, [&](std::string_view why) { failures.emplace_back(why); },
                            [](Session&, ChannelFault) {}});
    const SequenceHandle s = f.Open("r");
    f.backend->next_status = absl::InternalError("sticky");
    f.Submit({s});
    f.Submit({s});
    loop.Step();
    loop.Step();
    CHECK(failures == std::vector<std::string>{"sticky"});
  }

  TEST_CASE("after Stop a round that waits for the publisher is answered once there is room") {
    SessionFixture full;
    SessionFixture broken;
    SessionList list;
    list.Add(full.session);
    list.Add(broken.session);
    FillEvents(&full);
    // The broken session's fault is reported at the end of the first look, when the full session
    // was refused. The publisher then makes room.
    broken.segment->submission_entries()[0].sequence.store(99);
    VerifyLoop loop(&list,
                    {0, [](std::string_view) {}, [&](Session&, ChannelFault) { full.Events(); }});
    loop.Stop();
    loop.Run();
    CompletionView done;
    CHECK(full.engine->Poll(&done));
  }

  TEST_CASE("once nothing is blocked any more the loop sleeps on the engines' bells again") {
    SessionFixture f;
    SessionList list;
    list.Add(f.session);
    FillEvents(&f);
    VerifyLoop loop(&list, Quiet());
    CHECK_FALSE(loop.Step());
    f.Events();
    std::thread thread([&] { loop.Run(); });
    // 30 s only bound how long a broken loop takes to fail.
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    const std::atomic<uint32_t>& sleepers = f.segment->page()->submission_bell.waiters;
    while (sleepers.load() == 0 && absl::Now() < deadline) std::this_thread::yield();
    CHECK(sleepers.load() == 1);
    loop.Stop();
    thread.join();
    CompletionView done;
    CHECK(f.engine->Poll(&done));
  }

  TEST_CASE("an idle loop says so before it sleeps, and whether it has worked since") {
    SessionFixture f;
    SessionList list;
    list.Add(f.session);
    const SequenceHandle s = f.Open("r");
    f.backend->script = {Confirm(0, {1})};
    f.Submit({s});
    std::vector<bool> told;
    VerifyLoop* running = nullptr;
    VerifyLoop::Options options = Quiet();
    options.on_idle = [&](bool has_worked) {
      told.push_back(has_worked);
      if (told.size() == 2) running->Stop();
    };
    VerifyLoop loop(&list, options);
    running = &loop;
    loop.Run();
    CHECK(told == std::vector<bool>{true, false});
  }

  TEST_CASE("a loop with a round that waits for the publisher is not idle") {
    SessionFixture f;
    SessionList list;
    list.Add(f.session);
    FillEvents(&f);
    std::atomic<int> told = 0;
    VerifyMeters meters;
    VerifyLoop::Options options = Quiet();
    options.meters = &meters;
    options.on_idle = [&](bool) { ++told; };
    VerifyLoop loop(&list, options);
    std::thread thread([&] { loop.Run(); });
    while (meters.beats.value() < 10) std::this_thread::yield();
    CHECK(told.load() == 0);
    f.Events();
    while (told.load() == 0) std::this_thread::yield();
    loop.Stop();
    thread.join();
  }

  TEST_CASE("an engine that submits for ever does not keep Run from returning after Stop") {
    constexpr int kForEver = 10'000;
    HookedSession f;
    SessionList list;
    list.Add(f.session);
    const SequenceHandle s = f.Open("r", 1'000'000);
    int rounds = 0;
    f.hooked->hook = [&](const RoundBatch&) {
      f.backend->script = {Confirm(0, {1})};
      CompletionView done;
      f.engine->Poll(&done);
      if (++rounds < kForEver) CHECK(f.Submit({s}) == PushResult::kOk);
    };
    f.Submit({s});
    VerifyLoop loop(&list, Quiet());
    loop.Stop();
    loop.Run();
    CHECK(rounds > 0);
    CHECK(rounds < kForEver);
  }

  TEST_CASE("after Stop the deepest ring is answered to its last round") {
    HookedSession f(SessionLimits::kRingDepthMax);
    SessionList list;
    list.Add(f.session);
    const SequenceHandle s = f.Open("r");
    f.hooked->hook = [&](const RoundBatch&) { f.backend->script = {Confirm(0, {1})}; };
    for (uint64_t i = 0; i < SessionLimits::kRingDepthMax; ++i) {
      REQUIRE(f.Submit({s}, i) == PushResult::kOk);
    }
    REQUIRE(f.Submit({s}) == PushResult::kFull);
    VerifyLoop loop(&list, Quiet());
    loop.Stop();
    loop.Run();
    CompletionView done;
    for (uint64_t i = 0; i < SessionLimits::kRingDepthMax; ++i) {
      REQUIRE(f.engine->Poll(&done));
      CHECK(done.round_id == i);
    }
  }
}

}  // namespace
}  // namespace specd
