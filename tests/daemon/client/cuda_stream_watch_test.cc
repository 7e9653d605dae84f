// The cases in which a CUDA stream is released without an answer, and those in which it must not
// be.
#include "daemon/client/cuda_stream_watch.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <thread>

#include "ipc/segment/daemon_channel.h"
#include "ipc/segment/engine_channel.h"
#include "ipc/segment/round_words.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"

namespace specd {
namespace {

constexpr int64_t kTimeoutNs = 1000;

struct WatchFixture {
  WatchFixture() : segment(MakeSegment()), watch({&segment, &clock, kTimeoutNs, -1}) {}

  static Segment MakeSegment() {
    absl::StatusOr<Segment> made = Segment::Create({8, 4, 4, 3, 4, 4}, {1, 2});
    REQUIRE(made.ok());
    return *std::move(made);
  }
  RoundWords& Words(uint64_t number) { return *segment.round_words(number); }
  void MakeReady(uint64_t number) { Words(number).ready.store(number); }
  bool Released(uint64_t number) { return IsReleased(Words(number), number); }

  ManualClock clock;
  Segment segment;
  CudaStreamWatch watch;
  int stream_a = 0;
  int stream_b = 0;
};

TEST_SUITE("unit") {
  TEST_CASE("watch: a stream is released once its rows have been ready for the timeout") {
    WatchFixture f;
    f.watch.Add(1, &f.stream_a);
    // A forward may take any time.
    f.watch.Look(0, false);
    f.watch.Look(1'000'000, false);
    CHECK_FALSE(f.Released(1));
    f.MakeReady(1);
    f.watch.Look(2'000'000, false);
    f.watch.Look(2'000'000 + kTimeoutNs - 1, false);
    CHECK_FALSE(f.Released(1));
    f.watch.Look(2'000'000 + kTimeoutNs, false);
    CHECK(f.Released(1));
    CHECK(IsAborted(f.Words(1), 1));
  }

  // Bug: after a pause of the engine's process or machine, rounds that the daemon was about to
  // answer were called off.
  TEST_CASE("watch: time in which the watch did not look does not count") {
    WatchFixture f;
    constexpr int64_t kSecondNs = 1'000'000'000;
    CudaStreamWatch watch({&f.segment, &f.clock, 10 * kSecondNs, -1});
    watch.Add(1, &f.stream_a);
    f.MakeReady(1);
    watch.Look(0, false);
    int64_t now_ns = 3600 * kSecondNs;
    watch.Look(now_ns, false);
    CHECK_FALSE(f.Released(1));
    for (int i = 0; i < 7; ++i) watch.Look(now_ns += kSecondNs, false);
    CHECK_FALSE(f.Released(1));  // three quarters of the timeout are left after any pause
    watch.Look(now_ns += kSecondNs, false);
    CHECK(f.Released(1));
  }

  TEST_CASE("watch: an answer in time stands, and the next round of the slot starts anew") {
    WatchFixture f;
    f.watch.Add(1, &f.stream_a);
    f.MakeReady(1);
    f.watch.Look(0, false);
    Decide(&f.Words(1), 1, RoundEnd::kAnswered);
    Release(&f.Words(1), 1);
    f.watch.Look(kTimeoutNs * 5, false);
    CHECK_FALSE(IsAborted(f.Words(1), 1));
    f.watch.Add(5, &f.stream_a);
    f.MakeReady(5);
    f.watch.Look(kTimeoutNs * 5, false);
    CHECK_FALSE(f.Released(5));
    f.watch.Look(kTimeoutNs * 6, false);
    CHECK(f.Released(5));
  }

  TEST_CASE("watch: a round that the daemon has claimed is its own while it lives") {
    WatchFixture f;
    f.watch.Add(1, &f.stream_a);
    f.MakeReady(1);
    Decide(&f.Words(1), 1, RoundEnd::kAnswered);
    f.watch.Look(0, false);
    f.watch.Look(kTimeoutNs * 100, false);
    CHECK_FALSE(f.Released(1));
    // The daemon died before it reported what it had confirmed, so it confirmed nothing.
    f.watch.Look(kTimeoutNs * 100, true);
    CHECK(f.Released(1));
    CHECK(IsAborted(f.Words(1), 1));
  }

  TEST_CASE("watch: a daemon that died behind its completion has answered") {
    WatchFixture f;
    f.watch.Add(1, &f.stream_a);
    f.MakeReady(1);
    Decide(&f.Words(1), 1, RoundEnd::kAnswered);
    f.segment.completion_entries()[0].sequence.store(1);
    f.watch.Look(0, true);
    CHECK(f.Released(1));
    CHECK(f.Words(1).status.load() == PackRoundEnd(1, RoundEnd::kAnswered));
  }

  TEST_CASE("watch: a released round keeps its end, and wakes the engine's CPU once") {
    WatchFixture f;
    DoorbellLine& bell = f.segment.page()->completion_bell;
    bell.waiters.store(1);  // as if the engine slept
    f.watch.Add(1, &f.stream_a);
    f.MakeReady(1);
    f.watch.Look(0, false);
    CHECK(bell.word.load() == 0);
    f.watch.Look(kTimeoutNs, false);
    REQUIRE(f.Released(1));
    CHECK(bell.word.load() == 1);
    f.watch.Look(kTimeoutNs + 1, false);
    CHECK(bell.word.load() == 1);
    // The daemon released this CUDA stream itself, and died before it could report more.
    f.watch.Add(2, &f.stream_a);
    f.MakeReady(2);
    Decide(&f.Words(2), 2, RoundEnd::kFailed);
    Release(&f.Words(2), 2);
    f.watch.Look(kTimeoutNs + 2, true);
    CHECK(f.Words(2).status.load() == PackRoundEnd(2, RoundEnd::kFailed));
    CHECK(bell.word.load() == 1);
  }

  TEST_CASE("watch: one look releases every stream that has waited long enough") {
    WatchFixture f;
    for (const uint64_t number : {1, 2, 3}) {
      f.watch.Add(number, &f.stream_a);
      f.MakeReady(number);
    }
    f.watch.Look(0, true);
    for (const uint64_t number : {1, 2, 3}) CHECK(f.Released(number));
  }

  TEST_CASE("watch: without a daemon streams are released one after another, as they come") {
    WatchFixture f;
    f.watch.Add(1, &f.stream_a);
    f.watch.Add(2, &f.stream_a);
    f.MakeReady(1);
    f.watch.Look(0, true);
    CHECK(f.Released(1));
    // The CUDA stream is not there yet: kernels before it may still ask how the round one lap ago
    // ended.
    CHECK_FALSE(f.Released(2));
    f.MakeReady(2);
    f.watch.Look(0, true);
    CHECK(f.Released(2));
    CHECK(IsAborted(f.Words(2), 2));
  }

  TEST_CASE("watch: a slot belongs to one stream until that has passed") {
    WatchFixture f;
    CHECK(f.watch.IsFree(1, &f.stream_a));
    f.watch.Add(1, &f.stream_a);
    CHECK(f.watch.IsFree(5, &f.stream_a));
    CHECK_FALSE(f.watch.IsFree(5, &f.stream_b));
    f.Words(1).passed.store(1);
    CHECK(f.watch.IsFree(5, &f.stream_b));
  }

  TEST_CASE("watch: a closing engine releases everything, and waits for all to pass") {
    WatchFixture f;
    CHECK(f.watch.HaveAllPassed());
    f.watch.Add(1, &f.stream_a);
    f.watch.Add(2, &f.stream_b);
    f.watch.ReleaseAll(false);
    CHECK(f.Released(1));
    CHECK(f.Released(2));
    CHECK(IsAborted(f.Words(1), 1));
    f.Words(1).passed.store(1);
    CHECK_FALSE(f.watch.HaveAllPassed());
    f.Words(2).passed.store(2);
    CHECK(f.watch.HaveAllPassed());
  }

  TEST_CASE("watch: a closing engine calls off what is claimed only when it says so") {
    WatchFixture f;
    f.watch.Add(1, &f.stream_a);
    f.watch.Add(2, &f.stream_b);
    REQUIRE(Decide(&f.Words(1), 1, RoundEnd::kAnswered) == RoundEnd::kAnswered);
    f.watch.ReleaseAll(false);
    CHECK_FALSE(f.Released(1));
    CHECK(f.Released(2));
    f.watch.ReleaseAll(true);
    CHECK(f.Released(1));
    CHECK(IsAborted(f.Words(1), 1));
    // A given answer is not changed.
    f.watch.Add(3, &f.stream_a);
    REQUIRE(Decide(&f.Words(3), 3, RoundEnd::kAnswered) == RoundEnd::kAnswered);
    Release(&f.Words(3), 3);
    f.watch.ReleaseAll(true);
    CHECK_FALSE(IsAborted(f.Words(3), 3));
  }

  TEST_CASE("watch: the thread notices the death of a daemon, and wakes the engine's CPU") {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    UniqueFd daemon(ends[0]);
    const UniqueFd engine(ends[1]);
    WatchFixture f;
    EngineChannel channel(&f.segment);
    CudaStreamWatch watch({&f.segment, Clock::Real(), int64_t{1} << 60, engine.get()});
    REQUIRE(watch.Start().ok());
    SequenceInput draft;
    draft.discard = true;
    REQUIRE(channel.SubmitOnStream(1, {&draft, 1}, 0) == PushResult::kOk);
    watch.Add(1, &f.stream_a);
    f.MakeReady(1);
    SUBCASE("its socket hangs up") { daemon.Reset(-1); }
    SUBCASE("it says that it has stopped") {
      f.segment.page()->daemon.state.store(static_cast<uint32_t>(DaemonState::kStopped));
    }
    CHECK(channel.WaitCompletion({0, absl::Seconds(30)}));
    CompletionView done;
    REQUIRE(channel.Poll(&done));
    CHECK(f.Released(1));
    // The daemon is gone for good, although its socket may say otherwise.
    watch.Add(2, &f.stream_a);
    f.MakeReady(2);
    CHECK(Eventually([&] { return f.Released(2); }));
    watch.Stop();
  }

  TEST_CASE("watch: the thread releases a stream that a living daemon lets wait") {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    const UniqueFd daemon(ends[0]);
    const UniqueFd engine(ends[1]);
    WatchFixture f;
    EngineChannel channel(&f.segment);
    CudaStreamWatch watch({&f.segment, Clock::Real(), 1'000'000, engine.get()});
    REQUIRE(watch.Start().ok());
    SequenceInput draft;
    draft.discard = true;
    REQUIRE(channel.SubmitOnStream(1, {&draft, 1}, 0) == PushResult::kOk);
    watch.Add(1, &f.stream_a);
    f.MakeReady(1);
    CHECK(channel.WaitCompletion({0, absl::Seconds(30)}));
    CHECK(IsAborted(f.Words(1), 1));
  }
}

}  // namespace
}  // namespace specd
