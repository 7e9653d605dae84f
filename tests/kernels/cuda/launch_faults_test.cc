// Launches that do something wrong, which the comparisons of conformance_test.cc notice. The faults
// are barriers that are left out, warps that decide too early, and arrivals that are not taken
// back.
//
// A release or an acquire between two warps cannot be left out here, because all emulated threads
// share one memory. Only a device can miss it (tests/kernels/cuda/cuda_device_test.cc).
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/cuda/run_round.h"

namespace specd {
namespace {

struct Fault {
  int32_t left_out_at_once = -1;   // of the barriers of a warp while it judges and decides
  int32_t left_out_deferred = -1;  // of the barriers of a block while it decides
  bool decides_early = false;      // one arrival before the last
  bool keeps_arrivals = false;
};

// The barriers of the longest decision so far.
struct FaultState {
  int32_t num_at_once = 0;
  int32_t num_deferred = 0;
};

class FaultyThread : public EmulatedThread {
 public:
  FaultyThread(const EmulatedThread& thread, const Fault& fault, FaultState* state)
      : EmulatedThread(thread), fault_(fault), state_(state) {}

  void Sync() const {
    const int32_t number = (*num_syncs_)++;
    state_->num_deferred = std::max(state_->num_deferred, number + 1);
    if (number != fault_.left_out_deferred) EmulatedThread::Sync();
  }

  void SyncWarp() const {
    const int32_t number = (*num_syncs_)++;
    state_->num_at_once = std::max(state_->num_at_once, number + 1);
    if (number != fault_.left_out_at_once) EmulatedThread::SyncWarp();
  }

  // As in kernels/cuda/cuda_thread.cuh.
  bool IsLastToArrive(int32_t* counter, int32_t num_arrivals) const {
    EmulatedThread::SyncWarp();
    bool is_last = false;
    if (lane() == 0) {
      const bool is_early = fault_.decides_early && num_arrivals > 1;
      is_last = ++*counter == num_arrivals - (is_early ? 1 : 0);
      if (is_last && !fault_.keeps_arrivals) *counter = 0;
    }
    *num_syncs_ = 0;
    return Ballot(is_last) != 0;
  }

 private:
  const Fault fault_;
  FaultState* const state_;
  // Copies of a thread are one thread.
  std::shared_ptr<int32_t> num_syncs_ = std::make_shared<int32_t>(0);
};

constexpr int32_t kMaxDraft = 2;
constexpr int32_t kBatch = 8;
constexpr uint64_t kSchedules = 100;

// A crash is an answer here, not a report: of doctest, of a sanitizer or as a core file.
void EndQuietlyAtFaults() {
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU}) {
    std::signal(fault, SIG_DFL);
  }
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // The limit counts processor time, so other work of the machine does not matter.
  const rlimit cpu_seconds = {60, 60};
  setrlimit(RLIMIT_CPU, &cpu_seconds);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
}

struct FaultCase {
  explicit FaultCase(uint64_t seed = 12, bool plain = false)
      : round({.vocab_size = 6 * kTileSize,
               .batch = kBatch,
               .max_draft = kMaxDraft,
               .seed = seed,
               .plain = plain}),
        expected(ScalarAnswers(round)) {}

  // True if the launch gives the right answers. Several of its blocks share the tiles of a row.
  bool IsRight(const Fault& fault, uint64_t seed) {
    state = {};
    const LaunchResult result = LaunchRound(
        round, kMaxDraft, {.num_threads = 96, .schedule_seed = seed, .num_blocks = 6},
        [&](const EmulatedThread& thread) { return FaultyThread(thread, fault, &state); });
    return result.error.empty() && result.answers == expected && result.counts_are_back;
  }

  // Asks in a child process. A faulty launch may use an unwritten word as an index, so it may read
  // and write anywhere, or never end. If the child ends without an answer, the fault was noticed.
  bool IsNoticed(const Fault& fault, uint64_t num_schedules) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      EndQuietlyAtFaults();
      try {
        for (uint64_t seed = 0; seed < num_schedules; ++seed) {
          if (!IsRight(fault, seed)) _exit(1);
        }
      } catch (...) {
        _exit(1);  // else the child would run the other tests
      }
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }

  RoundCase round;
  const std::vector<std::string> expected;
  FaultState state;  // of the last launch
};

TEST_SUITE("unit") {
  TEST_CASE("a launch is right under every schedule, until it does something wrong") {
    FaultCase test;
    for (uint64_t seed = 0; seed < kSchedules; ++seed) {
      CAPTURE(seed);
      CHECK(test.IsRight({}, seed));
    }
    CHECK(test.IsNoticed({.decides_early = true}, 1));
    CHECK(test.IsNoticed({.keeps_arrivals = true}, 1));
  }

  // A warp that judges a place has a barrier for each of the place's rows, before it reads the
  // facts that it published. Only tasks that are decided at once show a missing barrier, and a
  // plain round always has some. The second barrier of a pair of rows makes all lanes agree. The
  // verdict is the first lane's, which has written the facts itself.
  TEST_CASE("a launch without a warp's barrier is noticed under some schedule") {
    for (const uint64_t seed : {12, 13, 14}) {
      CAPTURE(seed);
      FaultCase test(seed, true);
      REQUIRE(test.IsRight({}, 0));
      REQUIRE(test.state.num_at_once > 0);
      CHECK(test.IsNoticed({.left_out_at_once = 0}, kSchedules));
    }
  }

  // Not every missing barrier is noticed. Two barriers with nothing between them replace each
  // other, and few tasks reach the last ones. These rounds have no long search for a cut, which has
  // hundreds of such barriers.
  TEST_CASE("a launch without a barrier of its decisions is noticed under some schedule") {
    for (const uint64_t seed : {13, 14}) {
      CAPTURE(seed);
      FaultCase test(seed);
      REQUIRE(test.IsRight({}, 0));
      const FaultState state = test.state;
      REQUIRE(state.num_deferred > 0);
      int32_t num_noticed = 0;
      for (int32_t i = 0; i < state.num_deferred; ++i) {
        num_noticed += test.IsNoticed({.left_out_deferred = i}, 10) ? 1 : 0;
      }
      CHECK(2 * num_noticed >= state.num_deferred);
    }
  }
}

}  // namespace
}  // namespace specd
