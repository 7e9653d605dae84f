// The counts and the model of `specd-bench ptx`, against numbers worked out by hand.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tools/bench/ptx_counts.h"

namespace specd::bench {
namespace {

// 132 processors, 1.98 GHz, 4800 GB/s.
const DeviceFigures& H200() {
  const DeviceFigures* const device = FindPtxDevice(90, 132);
  REQUIRE(device != nullptr);
  return *device;
}

LaunchCounts WideLaunch() { return {.kernel = "k", .num_blocks = 1000, .threads_per_block = 128}; }

RoundCounts AnyRound() {
  LaunchCounts launch = WideLaunch();
  launch.num_by_class = {{"alu", 7}, {"float", 8}};
  launch.asked_bytes = 1;
  launch.asked_sectors = 2;
  launch.needed_sectors = 3;
  launch.asked_row_sectors = 11;
  launch.repeated_row_sectors = 10;
  launch.num_shared_turns = 12;
  launch.num_bank_conflicts = 4;
  launch.num_idle_lanes = 5;
  launch.chain_cycles = 6;
  launch.chain_instructions = 9;
  launch.chain_functions = {{"Finish", 5}, {"ReadTile", 2}};
  return {.case_name = "greedy",
          .dtype = "bf16",
          .arch = 90,
          .num_processors = 132,
          .batch = 1,
          .draft = 5,
          .vocab_size = 100,
          .num_elements = 600,
          .round = {launch, launch},
          .read = {launch}};
}

TEST_SUITE("unit") {
  TEST_CASE("ptx counts: a line is read as it was written") {
    const std::string text = ToJson(AnyRound());
    const auto counts = ParseCounts(text + "\n\n" + text + "\n");
    REQUIRE(counts.ok());
    REQUIRE(counts->size() == 2);
    CHECK(ToJson(counts->at(1)) == text);
    CHECK(counts->at(0).round[1].num_by_class.at("float") == 8);
    CHECK(counts->at(0).round[0].chain_instructions == 9);
    CHECK(counts->at(0).round[0].chain_functions.at("ReadTile") == 2);
    CHECK(counts->at(0).round[0].num_shared_turns == 12);
    CHECK(counts->at(0).round[0].asked_row_sectors == 11);
    CHECK(counts->at(0).round[0].repeated_row_sectors == 10);
    CHECK(counts->at(0).num_instructions() == 30);
  }

  TEST_CASE("ptx counts: a line of another kind is refused with its number") {
    const std::string good = ToJson(AnyRound());
    const auto error = [&](const std::string& line) {
      const auto counts = ParseCounts(good + "\n" + line);
      REQUIRE_FALSE(counts.ok());
      return std::string(counts.status().message());
    };
    CHECK(error("not JSON").find("line 2") == 0);
    CHECK(error("{}").find("case is missing") != std::string::npos);
    std::string text = good;
    text.replace(text.find("\"batch\": 1"), 10, "\"batch\": \"");
    CHECK(error(text).find("line 2") == 0);
    RoundCounts empty = AnyRound();
    empty.read.clear();
    CHECK(error(ToJson(empty)).find("needs elements") != std::string::npos);
    empty = AnyRound();
    empty.num_elements = 0;
    CHECK(error(ToJson(empty)).find("needs elements") != std::string::npos);
  }

  TEST_CASE("ptx model: a launch takes the longest of its times") {
    // Four instructions a cycle on each of 132 processors.
    LaunchCounts launch = WideLaunch();
    launch.num_by_class = {{"control", 132 * 4 * 1980}};
    LaunchPrediction predicted = PredictLaunch(launch, H200());
    CHECK(predicted.us() == doctest::Approx(1));
    CHECK(predicted.bound() == Bound::kIssue);
    // Conversions go 16 lanes a cycle, that is an eighth as fast; moves take nothing.
    launch.num_by_class = {{"convert", 132 * 4 * 1980}, {"move", 1'000'000'000}};
    CHECK(PredictLaunch(launch, H200()).us() == doctest::Approx(8));
    // With 33 blocks a quarter of the processors work.
    launch.num_blocks = 33;
    CHECK(PredictLaunch(launch, H200()).us() == doctest::Approx(32));

    launch = WideLaunch();
    launch.needed_sectors = launch.asked_sectors = 4800 * 1000 * 92 / 100 / 32;
    predicted = PredictLaunch(launch, H200());
    CHECK(predicted.us() == doctest::Approx(1));
    CHECK(predicted.bound() == Bound::kMemory);
    // Asked for ten times, they wait for the L2 cache.
    launch.asked_sectors = 5120 * 1980 * 3 / 32;
    CHECK(PredictLaunch(launch, H200()).us() == doctest::Approx(3));

    launch = WideLaunch();
    launch.chain_cycles = 2 * 1980;
    CHECK(PredictLaunch(launch, H200()).us() == doctest::Approx(2));
    CHECK(PredictLaunch(launch, H200()).busy_us() == 0);
    CHECK(PredictLaunch(launch, H200()).bound() == Bound::kChain);
    launch.num_by_class = {{"shared", 132 * 1980}};
    launch.num_shared_turns = 5 * 132 * 1980;
    CHECK(PredictLaunch(launch, H200()).us() == doctest::Approx(5));
    CHECK(PredictLaunch(launch, H200()).busy_us() == doctest::Approx(5));
    CHECK(PredictLaunch(launch, H200()).bound() == Bound::kShared);
  }

  TEST_CASE("ptx model: a round adds a gap for each launch") {
    LaunchCounts launch = WideLaunch();
    launch.chain_cycles = 1980;
    const std::vector<LaunchCounts> one(1, launch);
    const std::vector<LaunchCounts> three(3, launch);
    const double single_us = PredictRound(one, H200()).us;
    CHECK(single_us == doctest::Approx(1 + H200().gap_us));
    CHECK(PredictRound(three, H200()).us ==
          doctest::Approx(3 * single_us - 2 * (H200().gap_us - H200().early_gap_us)));
    CHECK(PredictRound(three, H200()).busy_us == PredictRound(three, H200()).gap_us);
    // 75 TFLOPS of fp32: two operations of 128 lanes on 148 processors.
    const DeviceFigures* const b200 = FindPtxDevice(90, 148);
    CHECK(b200->name == "B200");
    CHECK(b200->clock_ghz == doctest::Approx(75e12 / (148 * 128 * 2) / 1e9).epsilon(0.001));
    CHECK(FindPtxDevice(80, 132) == nullptr);
    CHECK(FindPtxDevice(80, 108)->name == "A100");
  }
}

}  // namespace
}  // namespace specd::bench
