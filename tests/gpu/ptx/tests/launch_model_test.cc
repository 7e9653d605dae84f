// The model of predicted times, against numbers worked out by hand.
#include "tests/gpu/ptx/counts/launch_model.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/gpu/ptx/machine/op_class.h"

namespace specd::ptx {
namespace {

// 132 processors, 1.98 GHz, 4800 GB/s.
const DeviceFigures& H200() {
  const DeviceFigures* const device = FindDevice(90, 132);
  REQUIRE(device != nullptr);
  return *device;
}

LaunchProfile WideLaunch() {
  LaunchProfile launch;
  launch.num_blocks = 1000;
  return launch;
}

uint64_t& NumOf(OpClass op_class, LaunchProfile* launch) {
  return launch->num_by_class[static_cast<size_t>(op_class)];
}

TEST_SUITE("ptx") {
  TEST_CASE("ptx model: a launch takes the longest of its times") {
    // Four instructions a cycle on each of 132 processors.
    LaunchProfile launch = WideLaunch();
    NumOf(OpClass::kControl, &launch) = 132 * 4 * 1980;
    LaunchPrediction predicted = PredictLaunch(launch, H200());
    CHECK(predicted.us() == doctest::Approx(1));
    CHECK(predicted.bound() == Bound::kIssue);
    // Conversions go 16 lanes a cycle, that is an eighth as fast; moves take nothing.
    NumOf(OpClass::kControl, &launch) = 0;
    NumOf(OpClass::kConvert, &launch) = 132 * 4 * 1980;
    NumOf(OpClass::kMove, &launch) = 1'000'000'000;
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
    NumOf(OpClass::kShared, &launch) = 132 * 1980;
    launch.num_shared_turns = 5 * 132 * 1980;
    CHECK(PredictLaunch(launch, H200()).us() == doctest::Approx(5));
    CHECK(PredictLaunch(launch, H200()).busy_us() == doctest::Approx(5));
    CHECK(PredictLaunch(launch, H200()).bound() == Bound::kShared);
  }

  TEST_CASE("ptx model: a round adds a gap for each launch") {
    LaunchProfile launch = WideLaunch();
    launch.chain_cycles = 1980;
    const std::vector<LaunchProfile> one(1, launch);
    const std::vector<LaunchProfile> three(3, launch);
    const double single_us = PredictRound(one, H200()).us;
    CHECK(single_us == doctest::Approx(1 + H200().gap_us));
    CHECK(PredictRound(three, H200()).us ==
          doctest::Approx(3 * single_us - 2 * (H200().gap_us - H200().early_gap_us)));
    CHECK(PredictRound(three, H200()).busy_us == PredictRound(three, H200()).gap_us);
    // 75 TFLOPS of fp32: two operations of 128 lanes on 148 processors.
    const DeviceFigures* const b200 = FindDevice(90, 148);
    CHECK(b200->name == "B200");
    CHECK(b200->clock_ghz == doctest::Approx(75e12 / (148 * 128 * 2) / 1e9).epsilon(0.001));
    CHECK(FindDevice(80, 132) == nullptr);
    CHECK(FindDevice(80, 108)->name == "A100");
  }
}

}  // namespace
}  // namespace specd::ptx
