// Launches that do something wrong, and are noticed by what conformance_test.cc compares: barriers
// that are left out, blocks that decide too early, arrivals that are not taken back.
//
// Emulated blocks run one after another, so what is between two blocks beyond the count of
// arrivals, the fence, cannot be left out here: only a device can miss it
// (tests/kernels/cuda_device_test.cc).
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/run_round.h"

namespace specd {
namespace {

struct Fault {
  int32_t left_out_of_arrival = -1;   // of the three barriers of IsLastToArrive, everywhere
  int32_t left_out_of_decision = -1;  // of the barriers while a task is decided
  bool decides_early = false;         // one arrival before the last
  bool keeps_arrivals = false;
};

// What a launch's threads share with each other and with the test.
struct FaultState {
  std::map<int32_t, bool> is_last = {};  // in shared memory: of each block
  int32_t num_syncs = 0;                 // of the longest decision so far
};

class FaultyThread : public EmulatedThread {
 public:
  FaultyThread(const EmulatedThread& thread, const Fault& fault, FaultState* state)
      : EmulatedThread(thread), fault_(fault), state_(state) {}

  void Sync() const {
    const int32_t number = (*num_syncs_)++;
    state_->num_syncs = std::max(state_->num_syncs, number + 1);
    if (number != fault_.left_out_of_decision) EmulatedThread::Sync();
  }

  // As in kernels/cuda/cuda_thread.cuh.
  bool IsLastToArrive(int32_t* counter, int32_t num_arrivals) const {
    ArrivalSync(0);
    if (warp() == 0 && lane() == 0) {
      const bool is_early = fault_.decides_early && num_arrivals > 1;
      state_->is_last[block()] = ++*counter == num_arrivals - (is_early ? 1 : 0);
      if (state_->is_last[block()] && !fault_.keeps_arrivals) *counter = 0;
    }
    ArrivalSync(1);
    const bool is_last = state_->is_last[block()];
    ArrivalSync(2);
    *num_syncs_ = 0;
    return is_last;
  }

 private:
  void ArrivalSync(int32_t number) const {
    if (number != fault_.left_out_of_arrival) EmulatedThread::Sync();
  }

  const Fault fault_;
  FaultState* const state_;
  // Copies of a thread are one thread.
  std::shared_ptr<int32_t> num_syncs_ = std::make_shared<int32_t>(0);
};

constexpr int32_t kMaxDraft = 2;
constexpr int32_t kBatch = 8;
constexpr uint64_t kSchedules = 100;

struct FaultCase {
  FaultCase()
      : round({.vocab_size = 6 * kTileSize, .batch = kBatch, .max_draft = kMaxDraft, .seed = 12}),
        expected(ScalarAnswers(round)) {}

  // Is the launch what it ought to be? Tiles of a row are with several of its blocks.
  bool IsRight(const Fault& fault, uint64_t seed, int32_t* num_syncs = nullptr) {
    FaultState state;
    const LaunchResult result = LaunchRound(
        round, kMaxDraft, {.num_threads = 96, .schedule_seed = seed, .num_blocks = 6},
        [&](const EmulatedThread& thread) { return FaultyThread(thread, fault, &state); });
    if (num_syncs != nullptr) *num_syncs = state.num_syncs;
    return result.error.empty() && result.answers == expected &&
           result.arrivals == std::vector<int32_t>(kBatch, 0);
  }

  bool IsNoticed(const Fault& fault, uint64_t num_schedules) {
    for (uint64_t seed = 0; seed < num_schedules; ++seed) {
      if (!IsRight(fault, seed)) return true;
    }
    return false;
  }

  RoundCase round;
  const std::vector<std::string> expected;
};

TEST_SUITE("unit") {
  TEST_CASE("a launch is right under every schedule, until it does something wrong") {
    FaultCase test;
    CHECK_FALSE(test.IsNoticed({}, kSchedules));
    CHECK(test.IsNoticed({.decides_early = true}, 1));
    CHECK(test.IsNoticed({.keeps_arrivals = true}, 1));
  }

  // The third one of an arrival keeps nothing apart that the first of the next one does not.
  TEST_CASE("a launch without a barrier of its arrivals is noticed under some schedule") {
    FaultCase test;
    CHECK(test.IsNoticed({.left_out_of_arrival = 0}, kSchedules));
    CHECK(test.IsNoticed({.left_out_of_arrival = 1}, kSchedules));
  }

  // Two barriers with nothing between them make up for each other, and only few tasks come to the
  // last ones, so not each is missed.
  TEST_CASE("a launch without a barrier of its decisions is noticed under some schedule") {
    FaultCase test;
    int32_t num_barriers = 0;
    REQUIRE(test.IsRight({}, 0, &num_barriers));
    REQUIRE(num_barriers > 0);
    int32_t num_noticed = 0;
    for (int32_t i = 0; i < num_barriers; ++i) {
      num_noticed += test.IsNoticed({.left_out_of_decision = i}, 10) ? 1 : 0;
    }
    CHECK(2 * num_noticed >= num_barriers);
  }
}

}  // namespace
}  // namespace specd
