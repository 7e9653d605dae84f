// Doorbells lose no wake, and wake no sleeper without need.
#include "ipc/segment/doorbell.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace specd {
namespace {

// No wait of these tests should ever end by time; if a wake is lost, this is how long it takes to
// be told.
const WaitOptions kSleepAtOnce{0, absl::Seconds(30)};

// Some work of random length, so that rings and sleeps meet at ever new places.
void Dawdle(std::minstd_rand* random) {
  std::atomic<int> sink{0};
  for (uint32_t i = (*random)() % 200; i > 0; --i) sink.fetch_add(1, std::memory_order_relaxed);
}

TEST_SUITE("unit") {
  TEST_CASE("doorbell: a condition that holds is answered at once, one that does not by time") {
    DoorbellLine line = {};
    const Doorbell bell(&line);
    CHECK(bell.Wait({0, absl::ZeroDuration()}, [] { return true; }));
    CHECK_FALSE(bell.Wait({0, absl::ZeroDuration()}, [] { return false; }));
    CHECK_FALSE(bell.Wait({1000, absl::Microseconds(50)}, [] { return false; }));
    CHECK(line.waiters.load() == 0);
  }

  TEST_CASE("doorbell: a ring that nobody waits for changes nothing") {
    DoorbellLine line = {};
    Doorbell(&line).Ring();
    CHECK(line.word.load() == 0);
    line.waiters.store(1);
    Doorbell(&line).Ring();
    CHECK(line.word.load() == 1);
  }

  TEST_CASE("doorbell: a ring between the look and the sleep is not lost") {
    DoorbellLine line = {};
    const Doorbell bell(&line);
    // The worst moment, made certain: the condition comes true and the bell rings after the waiter
    // looked for the last time. The kernel must find the word changed.
    int looks = 0;
    bool is_true = false;
    CHECK(bell.Wait(kSleepAtOnce, [&] {
      const bool answer = is_true;
      if (++looks == 2) {
        is_true = true;
        bell.Ring();
      }
      return answer;
    }));
    CHECK(looks == 3);
  }

  TEST_CASE("doorbell: hammer, every hand-over arrives") {
    constexpr uint32_t kHandovers = 20000;
    DoorbellLine there = {};
    DoorbellLine back = {};
    std::atomic<uint32_t> ball{0};
    std::atomic<uint32_t> timeouts{0};
    std::thread other([&] {
      std::minstd_rand random(1);
      for (uint32_t n = 1; n < kHandovers; n += 2) {
        if (!Doorbell(&there).Wait(kSleepAtOnce, [&] { return ball.load() >= n; })) ++timeouts;
        Dawdle(&random);
        ball.store(n + 1, std::memory_order_relaxed);
        Doorbell(&back).Ring();
      }
    });
    std::minstd_rand random(2);
    for (uint32_t n = 0; n < kHandovers; n += 2) {
      if (!Doorbell(&back).Wait(kSleepAtOnce, [&] { return ball.load() >= n; })) ++timeouts;
      Dawdle(&random);
      ball.store(n + 1, std::memory_order_relaxed);
      Doorbell(&there).Ring();
    }
    other.join();
    CHECK(timeouts.load() == 0);
    CHECK(ball.load() == kHandovers);
  }

  TEST_CASE("doorbell: one thread waits for many, each of them wakes it") {
    constexpr size_t kBells = 5;
    constexpr uint32_t kRings = 4000;
    std::array<DoorbellLine, kBells> lines = {};
    DoorbellLine answer = {};
    std::array<std::atomic<uint32_t>, kBells> counts = {};
    std::atomic<uint32_t> served{0};
    std::vector<Doorbell> bells;
    for (DoorbellLine& line : lines) bells.emplace_back(&line);
    std::atomic<uint32_t> timeouts{0};
    std::thread waiter([&] {
      std::array<uint32_t, kBells> seen = {};
      for (uint32_t n = 0; n < kRings; ++n) {
        const auto ready = [&] {
          for (size_t i = 0; i < kBells; ++i) {
            if (counts[i].load() != seen[i]) return true;
          }
          return false;
        };
        if (!WaitAny(bells, kSleepAtOnce, ready)) ++timeouts;
        for (size_t i = 0; i < kBells; ++i) seen[i] = counts[i].load();
        served.store(n + 1, std::memory_order_relaxed);
        Doorbell(&answer).Ring();
      }
    });
    for (uint32_t n = 0; n < kRings; ++n) {
      const size_t which = n * 7 % kBells;
      counts[which].fetch_add(1, std::memory_order_relaxed);
      bells[which].Ring();
      if (!Doorbell(&answer).Wait(kSleepAtOnce, [&] { return served.load() == n + 1; })) ++timeouts;
    }
    waiter.join();
    CHECK(timeouts.load() == 0);
  }

  TEST_CASE("doorbell: waiting for many ends by time as well") {
    std::array<DoorbellLine, 2> lines = {};
    const std::array<Doorbell, 2> bells = {Doorbell(&lines[0]), Doorbell(&lines[1])};
    CHECK_FALSE(WaitAny(bells, {0, absl::Microseconds(50)}, [] { return false; }));
    CHECK(lines[0].waiters.load() == 0);
    CHECK(lines[1].waiters.load() == 0);
  }
}

}  // namespace
}  // namespace specd
