#include "tools/bench/stall_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace specd::bench {
namespace {

constexpr int kSlices = 5;  // of each case

struct Samples {
  const StallCase* of = nullptr;
  std::vector<double> all_us = {};
};

absl::Status RunSlice(double seconds, StallScene* scene, Samples* samples) {
  const StallCase& what = *samples->of;
  if (what.neighbour.has_value()) {
    if (absl::Status s = scene->Begin(*what.neighbour); !s.ok()) return s;
  }
  const absl::StatusOr<std::vector<double>> times_us = scene->RunSmall(what.work, seconds);
  if (!times_us.ok()) return times_us.status();
  samples->all_us.insert(samples->all_us.end(), times_us->begin(), times_us->end());
  return what.neighbour.has_value() ? scene->End() : absl::OkStatus();
}

// The cases that were asked for, each after its base.
std::vector<Samples> Choose(const std::vector<std::string_view>& names) {
  const auto is_wanted = [&names](const StallCase& each) {
    return names.empty() || std::find(names.begin(), names.end(), each.name) != names.end();
  };
  std::vector<Samples> chosen;
  for (const StallCase& each : kStallCases) {
    const bool is_base =
        !each.neighbour.has_value() &&
        std::any_of(std::begin(kStallCases), std::end(kStallCases), [&](const StallCase& other) {
          return other.work == each.work && is_wanted(other);
        });
    if (is_base || is_wanted(each)) chosen.push_back({.of = &each});
  }
  return chosen;
}

}  // namespace

absl::StatusOr<std::vector<StallMeasurement>> StallSuite::Run() {
  absl::StatusOr<std::unique_ptr<StallScene>> scene =
      StallScene::Create({.threads = options_.threads});
  if (!scene.ok()) return scene.status();
  std::vector<Samples> chosen = Choose(options_.cases);
  const LoadMeter meter;
  for (int slice = 0; slice < kSlices; ++slice) {
    options_.on_progress(fmt::format("[{}/{}]", slice + 1, kSlices));
    for (Samples& samples : chosen) {
      absl::Status status = RunSlice(options_.seconds / kSlices, scene->get(), &samples);
      if (!status.ok()) return status;
    }
  }
  const ForeignLoad load = meter.Read();
  std::vector<StallMeasurement> measured;
  Summary base;
  for (Samples& samples : chosen) {
    StallMeasurement& m =
        measured.emplace_back(StallMeasurement{.case_name = samples.of->name,
                                               .threads = options_.threads,
                                               .round_us = Summarise(std::move(samples.all_us)),
                                               .load = load});
    if (!samples.of->neighbour.has_value()) {
      base = m.round_us;
      continue;
    }
    m.ratio = m.round_us.median / base.median;
    m.ratio_p99 = m.round_us.p99 / base.p99;
    m.ratio_max = m.round_us.max / base.max;
  }
  return measured;
}

}  // namespace specd::bench
