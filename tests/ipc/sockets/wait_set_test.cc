#include "ipc/sockets/wait_set.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace specd {
namespace {

constexpr absl::Duration kNever = absl::Seconds(60);  // a wait that is not woken fails

std::unique_ptr<WaitSet> Make() {
  absl::StatusOr<std::unique_ptr<WaitSet>> made = WaitSet::Make();
  REQUIRE(made.ok());
  return *std::move(made);
}
absl::Duration TimeOf(WaitSet* waits) {
  const absl::Time start = absl::Now();
  waits->Wait(kNever, [] { return false; });
  return absl::Now() - start;
}

TEST_SUITE("unit") {
  TEST_CASE("wait: a message of any socket and bytes of any descriptor end a wait") {
    absl::StatusOr<ZmqContext> context = ZmqContext::Make();
    std::vector<std::unique_ptr<ZmqSocket>> pulls;
    std::vector<std::unique_ptr<ZmqSocket>> pushes;
    const std::unique_ptr<WaitSet> waits = Make();
    for (const std::string endpoint : {"inproc://a", "inproc://b"}) {
      pulls.push_back(std::make_unique<ZmqSocket>(*ZmqSocket::Make(&*context, ZmqKind::kPull, {})));
      pushes.push_back(
          std::make_unique<ZmqSocket>(*ZmqSocket::Make(&*context, ZmqKind::kPush, {})));
      REQUIRE(pulls.back()->Bind(endpoint).ok());
      REQUIRE(pushes.back()->Connect(endpoint).ok());
      waits->Add(pulls.back().get());
    }
    int pipe_fds[2];
    REQUIRE(pipe(pipe_fds) == 0);
    waits->Add(pipe_fds[0]);
    for (const size_t i : {0, 1}) {
      const std::string_view frames[] = {"x"};
      REQUIRE(*pushes[i]->Send(frames));
      CHECK(TimeOf(waits.get()) < kNever);
      std::vector<std::string> received;
      CHECK(*pulls[i]->Receive(&received, absl::ZeroDuration()));
    }
    REQUIRE(write(pipe_fds[1], "x", 1) == 1);
    CHECK(TimeOf(waits.get()) < kNever);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
  }

  TEST_CASE("wait: no ring is lost, whenever it comes") {
    const std::unique_ptr<WaitSet> waits = Make();
    constexpr int kTurns = 20'000;
    std::atomic<int> asked{0};
    std::atomic<int> done{0};
    std::thread ringer([&] {
      for (int turn = 1; turn <= kTurns; ++turn) {
        while (asked.load() < turn) std::this_thread::yield();
        done.store(turn, std::memory_order_relaxed);
        waits->Ring();
      }
    });
    int late = 0;
    for (int turn = 1; turn <= kTurns; ++turn) {
      asked.store(turn);
      const absl::Time start = absl::Now();
      const auto is_done = [&] { return done.load(std::memory_order_relaxed) >= turn; };
      while (!is_done()) {
        waits->Wait(kNever, is_done);
        if (absl::Now() - start >= kNever) ++late;
      }
    }
    ringer.join();
    CHECK(late == 0);
  }

  TEST_CASE("wait: rings that come before a wait do not end it, and what they told of does") {
    const std::unique_ptr<WaitSet> waits = Make();
    for (int i = 0; i < 3; ++i) waits->Ring();
    constexpr absl::Duration kShort = absl::Milliseconds(20);
    const absl::Time start = absl::Now();
    waits->Wait(kShort, [] { return false; });
    CHECK(absl::Now() - start >= kShort);
    waits->Wait(absl::InfiniteDuration(), [] { return true; });
  }
}

}  // namespace
}  // namespace specd
