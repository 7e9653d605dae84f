#include "tests/gpu/emulation/emulated_block.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("shuffles, ballots and sums exchange values inside a warp only") {
    std::vector<uint32_t> seen(128);
    std::vector<uint32_t> ballots(128);
    std::vector<uint32_t> sums(128);
    const std::string error = RunEmulatedBlock({.num_threads = 128}, [&](EmulatedThread thread) {
      const int32_t index = thread.warp() * 32 + thread.lane();
      seen[index] = thread.Shuffle(100 * thread.warp() + thread.lane(), thread.lane() ^ 5);
      ballots[index] = thread.Ballot(thread.lane() % 2 == thread.warp() % 2);
      sums[index] = thread.SumOfWarp(0x10000000u * static_cast<uint32_t>(thread.lane()) + 1);
    });
    CHECK(error == "");
    for (int32_t i = 0; i < 128; ++i) {
      CHECK(seen[i] == static_cast<uint32_t>(100 * (i / 32) + (i % 32 ^ 5)));
      CHECK(ballots[i] == (i / 32 % 2 == 0 ? 0x55555555u : 0xAAAAAAAAu));
      CHECK(sums[i] == 32);  // the sum of 2^28 times 0 .. 31 is a multiple of 2^32
    }
  }

  TEST_CASE("a barrier makes earlier writes visible and its absence is noticed by some schedule") {
    // Warp 0 writes, the others read. With a barrier all see the value; without it, schedules
    // differ.
    for (const bool with_barrier : {true, false}) {
      std::set<uint32_t> seen;
      for (uint64_t seed = 0; seed < 20; ++seed) {
        uint32_t shared = 0xFFFFFFFFu;
        std::vector<uint32_t> read(64);
        const std::string error = RunEmulatedBlock(
            {.num_threads = 64, .schedule_seed = seed}, [&](EmulatedThread thread) {
              static_cast<void>(thread.Ballot(true));
              if (thread.warp() == 0 && thread.lane() == 0) shared = 7;
              if (with_barrier) thread.Sync();
              read[thread.warp() * 32 + thread.lane()] = shared;
            });
        CHECK(error == "");
        for (int32_t i = 32; i < 64; ++i) seen.insert(read[i]);
      }
      CHECK(seen.size() == (with_barrier ? 1 : 2));
    }
  }

  TEST_CASE("a lane or a warp that does not come, or is elsewhere, is an error") {
    struct Case {
      const char* error;
      int32_t num_threads;
      void (*body)(EmulatedThread);
    };
    const Case cases[] = {{"warp 1: lane 0 is at a shuffle while lane 13 is finished", 64,
                           [](EmulatedThread thread) {
                             if (thread.warp() == 0 || thread.lane() != 13)
                               static_cast<void>(thread.Shuffle(1, 0));
                           }},
                          {"lane 0 is at a shuffle while lane 3 is at a ballot", 32,
                           [](EmulatedThread thread) {
                             if (thread.lane() == 3) static_cast<void>(thread.Ballot(true));
                             if (thread.lane() != 3) static_cast<void>(thread.Shuffle(1, 0));
                           }},
                          {"lane 0 is at a barrier while lane 1 is at a ballot", 32,
                           [](EmulatedThread thread) {
                             if (thread.lane() == 0) thread.Sync();
                             static_cast<void>(thread.Ballot(true));
                           }},
                          {"32 of 96 threads finished while the others are at a barrier", 96,
                           [](EmulatedThread thread) {
                             if (thread.warp() != 2) thread.Sync();
                           }},
                          {"lane 31 asks for lane 32", 32, [](EmulatedThread thread) {
                             static_cast<void>(thread.Shuffle(1, thread.lane() + 1));
                           }}};
    for (const Case& c : cases) {
      const std::string error = RunEmulatedBlock({.num_threads = c.num_threads}, c.body);
      CAPTURE(error);
      CHECK(error.find(c.error) != std::string::npos);
    }
  }

  TEST_CASE("blocks of a launch each run once, at the same time under some schedule") {
    bool were_together = false;
    bool were_apart = false;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      std::vector<int> runs(5, 0);
      int num_running = 0;
      int most_running = 0;
      const EmulationOptions options{.num_threads = 64, .schedule_seed = seed, .num_blocks = 5};
      REQUIRE(RunEmulatedBlocks(options, [&](EmulatedThread thread) {
                const bool is_first = thread.warp() == 0 && thread.lane() == 0;
                if (is_first) most_running = std::max(most_running, ++num_running);
                for (int i = 0; i < 10; ++i) thread.Sync();
                if (!is_first) return;
                --num_running;
                ++runs[static_cast<size_t>(thread.block())];
              }) == "");
      CHECK(runs == std::vector<int>(5, 1));
      were_together = were_together || most_running > 1;
      were_apart = were_apart || most_running == 1;
    }
    CHECK(were_together);
    CHECK(were_apart);
  }

  TEST_CASE("an error in one block ends the launch") {
    const EmulationOptions options{.num_threads = 64, .schedule_seed = 3, .num_blocks = 5};
    const auto body = [](EmulatedThread thread) {
      if (thread.block() == 2 && thread.warp() == 1) return;
      thread.Sync();
    };
    CHECK(RunEmulatedBlocks(options, body) ==
          "block 2: 32 of 64 threads finished while the others are at a barrier");
    // Its threads are free again.
    CHECK(RunEmulatedBlocks(options, [](EmulatedThread thread) { thread.Sync(); }) == "");
  }
}

}  // namespace
}  // namespace specd
