#include <doctest/doctest.h>
#include <sched.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/mentions.h"
#include "tests/tools/printed_output.h"
#include "tools/bench/cells.h"
#include "tools/bench/read_floor.h"
#include "tools/bench/timing.h"

namespace specd::bench {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("a summary takes values that were measured, by rank") {
    std::vector<double> values;
    for (int i = 100; i >= 1; --i) values.push_back(i);
    const Summary summary = Summarise(values);
    CHECK(summary.p10 == 10);
    CHECK(summary.median == 50);
    CHECK(summary.p90 == 90);
    CHECK(summary.p99 == 99);
    CHECK(summary.max == 100);
    CHECK(summary.num_samples == 100);
    CHECK(Summarise({7}).p99 == 7);
  }

  TEST_CASE("a ratio is of medians; its spread is of neighbours") {
    Measurement read;
    read.ratio_of = "read";
    read.SetTimes({2, 4, 9}, {1, 2, 3});
    CHECK(read.ratio == 2);
    CHECK(read.ratio_p10 == 2);
    CHECK(read.ratio_p90 == 3);
    read.target = 2;
    CHECK(read.goal().IsMet());
    read.target = 1.9;
    CHECK_FALSE(read.goal().IsMet());

    Measurement peer;
    peer.ratio_of = "llama";
    peer.SetTimes({2, 4, 10}, {20, 80, 50});
    CHECK(peer.ratio == 12.5);
    peer.target = 12;
    CHECK(peer.goal().IsMet());
  }

  TEST_CASE("a goal is neither met nor missed while other programs have the machine") {
    for (const double others : {0.01, 0.5}) {
      CAPTURE(others);
      const auto print = [&](Output* out) {
        Line line;
        out->Print(line.Name("case", "one", 5)
                       .Target({.measured = 1, .bound = 2, .unit = "us"})
                       .Load({.others = others}));
      };
      const std::string text = Printed("verify", Format::kMarkdown, print);
      CHECK(Mentions(text, "| one | <= 2 us met |") == (others == 0.01));
      CHECK(Mentions(text, "| one | disturbed |") == (others == 0.5));
    }
  }

  // Suite ipc pins its thread, and a daemon to another CPU.
  TEST_CASE("the load was that of the CPU to which a thread is pinned") {
    const std::vector<int> usable = UsableCpus();
    std::thread([&] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(usable.back(), &one);
      REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
      CHECK(UsableCpus() == usable);
    }).join();
  }

  TEST_CASE("the floor reads every byte once, in even parts") {
    const std::vector<char> memory(10000);
    const std::vector<MemorySpan> spans = {{memory.data(), 6000}, {memory.data() + 7000, 1000}};
    for (const int32_t num_parts : {1, 2, 3, 7}) {
      const std::vector<std::vector<MemorySpan>> parts = SplitEvenly(spans, num_parts);
      REQUIRE(parts.size() == static_cast<size_t>(num_parts));
      std::vector<int> reads(memory.size());
      for (const std::vector<MemorySpan>& part : parts) {
        size_t size_bytes = 0;
        for (const MemorySpan& span : part) {
          for (const char& byte : span) ++reads[static_cast<size_t>(&byte - memory.data())];
          size_bytes += span.size();
        }
        CHECK(size_bytes <= 7000u / static_cast<size_t>(num_parts) + 128);
      }
      for (size_t i = 0; i < reads.size(); ++i) {
        REQUIRE(reads[i] == (i < 6000 || (i >= 7000 && i < 8000) ? 1 : 0));
      }
    }
  }

  TEST_CASE("the floor is read by several threads, again and again") {
    const std::vector<char> memory(1 << 16);
    const auto parts = SplitEvenly({{memory.data(), memory.size()}}, 3);
    for (int i = 0; i < 20; ++i) CHECK(TimeRead(parts) > 0);
  }
}

}  // namespace
}  // namespace specd::bench
