#include "tools/bench/whole_rounds.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <string>

#include "tools/bench/answer_difference.h"
#include "tools/bench/steady_clock.h"
#include "tools/bench/timing.h"

namespace specd::bench {
namespace {

// Enough for a median, and a bound on the kept times of very short rounds.
constexpr size_t kRoundsMin = 5;
constexpr size_t kRoundsMax = 200'000;

}  // namespace

absl::StatusOr<double> WholeRounds::RunOnce(int32_t round) {
  RoundAnswer answer = set_.MakeAnswer();  // a new answer, so that a missing write is noticed
  const RoundBatch batch = rounds_.Batch(round, &answer);
  const SteadyClock::time_point start = SteadyClock::now();
  const absl::Status status = backend_->Run(batch);
  const SteadyClock::time_point end = SteadyClock::now();
  if (!status.ok()) return status;
  const std::string difference =
      DifferenceOf(set_, round, answer, expected_[static_cast<size_t>(round)]);
  if (!difference.empty()) return absl::InternalError("as a whole, " + difference);
  return std::chrono::duration<double, std::micro>(end - start).count();
}

absl::StatusOr<Summary> WholeRounds::Time(int32_t num_rounds, double seconds) {
  for (int32_t round = 0; round < num_rounds; ++round) {
    const absl::StatusOr<double> once = RunOnce(round);
    if (!once.ok()) return once.status();
  }
  int32_t round = 0;
  const absl::StatusOr<PairedTimes> times =
      TimePairs({seconds, kRoundsMin, kRoundsMax}, [&]() -> absl::StatusOr<TimedPair> {
        const absl::StatusOr<double> time_us = RunOnce(round);
        if (!time_us.ok()) return time_us.status();
        round = (round + 1) % num_rounds;
        return TimedPair{.case_us = *time_us};
      });
  if (!times.ok()) return times.status();
  return Summarise(times->case_us);
}

}  // namespace specd::bench
