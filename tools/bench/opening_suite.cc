#include "tools/bench/opening_suite.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "daemon/session/open_request.h"
#include "tools/bench/steady_clock.h"

namespace specd::bench {
namespace {

constexpr OpeningCase kCases[] = {
    {"idle", 0, "the neighbour opens nothing"},
    {kTinyOpenings, 1, "the neighbour opens and closes sequences with a prompt of one id"},
    {"million", kListIdsMax, "the same, with the longest prompt that one opening may bring"},
};
constexpr int kSlices = 5;  // of each case
constexpr int kWarmRounds = 100;

void SetRatios(const Summary& base, OpeningMeasurement* measurement) {
  measurement->ratio = measurement->round_us.median / base.median;
  measurement->ratio_p99 = measurement->round_us.p99 / base.p99;
  measurement->ratio_max = measurement->round_us.max / base.max;
}

}  // namespace

std::span<const OpeningCase> OpeningCases() { return kCases; }

absl::Status OpeningSuite::RunSlice(const OpeningCase& opening_case, OpeningScene* scene,
                                    Samples* samples) {
  std::unique_ptr<Openings> openings;
  if (opening_case.num_prompt_ids > 0) {
    openings = std::make_unique<Openings>(scene->neighbour(), opening_case.num_prompt_ids);
  }
  const auto run_while = [&](auto condition, std::vector<double>* times_us) -> absl::Status {
    while (condition()) {
      const absl::StatusOr<double> time_us = scene->RunRound();
      if (!time_us.ok()) return time_us.status();
      if (times_us != nullptr) times_us->push_back(*time_us);
    }
    return absl::OkStatus();
  };
  // The thread makes its prompt before its first opening.
  int num_warm = 0;
  absl::Status status = run_while(
      [&] {
        return num_warm++ < kWarmRounds || (openings != nullptr && openings->num_begun() == 0);
      },
      nullptr);
  if (!status.ok()) return status;
  // A slice lasts at least until one opening has ended.
  const SteadyClock::time_point end =
      SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                               std::chrono::duration<double>(seconds_ / kSlices));
  const int64_t num_before = openings == nullptr ? 0 : openings->num_done();
  status = run_while(
      [&] {
        return SteadyClock::now() < end || samples->rounds_us.empty() ||
               (openings != nullptr && openings->num_done() == num_before);
      },
      &samples->rounds_us);
  if (!status.ok() || openings == nullptr) return status;
  absl::StatusOr<std::vector<double>> times_us = openings->Stop();
  if (!times_us.ok()) return times_us.status();
  samples->openings_us.insert(samples->openings_us.end(), times_us->begin(), times_us->end());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<OpeningMeasurement>> OpeningSuite::Run() {
  absl::StatusOr<std::unique_ptr<OpeningScene>> scene = OpeningScene::Create();
  if (!scene.ok()) return scene.status();
  std::array<Samples, std::size(kCases)> samples;
  const LoadMeter meter;
  for (int slice = 0; slice < kSlices; ++slice) {
    for (size_t i = 0; i < std::size(kCases); ++i) {
      on_progress_(fmt::format("[{}/{}] {}", slice + 1, kSlices, kCases[i].name));
      const absl::Status status = RunSlice(kCases[i], scene->get(), &samples[i]);
      if (!status.ok()) return status;
    }
  }
  const ForeignLoad load = meter.Read();
  std::vector<OpeningMeasurement> measurements;
  for (size_t i = 0; i < std::size(kCases); ++i) {
    OpeningMeasurement measurement{.opening_case = &kCases[i], .load = load};
    measurement.round_us = Summarise(std::move(samples[i].rounds_us));
    if (!samples[i].openings_us.empty()) {
      measurement.opening_us = Summarise(std::move(samples[i].openings_us));
    }
    if (i > 0 && kCases[i - 1].name == kTinyOpenings) {
      SetRatios(measurements.back().round_us, &measurement);
    }
    measurements.push_back(measurement);
  }
  return measurements;
}

}  // namespace specd::bench
