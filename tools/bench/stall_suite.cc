#include "tools/bench/stall_suite.h"

#include <fmt/format.h>

#include <memory>

#include "tools/bench/stall_scene.h"

namespace specd::bench {
namespace {

constexpr int kSlices = 5;  // of each case

absl::Status RunSlice(double seconds, StallScene* scene, std::vector<double>* all_us) {
  const absl::StatusOr<std::vector<double>> times_us = scene->RunSmall(seconds);
  if (!times_us.ok()) return times_us.status();
  all_us->insert(all_us->end(), times_us->begin(), times_us->end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<StallMeasurement>> StallSuite::Run() {
  absl::StatusOr<std::unique_ptr<StallScene>> scene =
      StallScene::Create({.threads = options_.threads});
  if (!scene.ok()) return scene.status();
  const double seconds = options_.seconds / kSlices;
  std::vector<double> alone_us;
  std::vector<double> beside_us;
  const LoadMeter meter;
  for (int slice = 0; slice < kSlices; ++slice) {
    options_.on_progress(fmt::format("[{}/{}]", slice + 1, kSlices));
    if (absl::Status s = RunSlice(seconds, scene->get(), &alone_us); !s.ok()) return s;
    if (absl::Status s = (*scene)->BeginMonster(); !s.ok()) return s;
    if (absl::Status s = RunSlice(seconds, scene->get(), &beside_us); !s.ok()) return s;
    if (absl::Status s = (*scene)->EndMonster(); !s.ok()) return s;
  }
  const StallMeasurement alone{.case_name = "alone",
                               .threads = options_.threads,
                               .round_us = Summarise(std::move(alone_us)),
                               .load = meter.Read()};
  StallMeasurement beside = alone;
  beside.case_name = "monster";
  beside.round_us = Summarise(std::move(beside_us));
  beside.ratio = beside.round_us.median / alone.round_us.median;
  beside.ratio_p99 = beside.round_us.p99 / alone.round_us.p99;
  beside.ratio_max = beside.round_us.max / alone.round_us.max;
  return std::vector<StallMeasurement>{alone, beside};
}

}  // namespace specd::bench
