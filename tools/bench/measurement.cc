#include "tools/bench/measurement.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/core/check.h"

namespace specd::bench {

Summary Summarise(std::vector<double> values) {
  SPECD_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  // The smallest value that this share of all values does not exceed.
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
  };
  return {.median = at(0.5),
          .p10 = at(0.1),
          .p90 = at(0.9),
          .p99 = at(0.99),
          .max = values.back(),
          .num_samples = static_cast<int64_t>(values.size())};
}

void SetTimes(const PairedTimes& times, Measurement* measurement) {
  SPECD_CHECK(times.case_us.size() == times.base_us.size());
  const bool is_speed_up = measurement->IsSpeedUp();
  const auto ratio_of = [&](double case_us, double base_us) {
    return is_speed_up ? base_us / case_us : case_us / base_us;
  };
  std::vector<double> ratios;
  for (size_t i = 0; i < times.case_us.size(); ++i) {
    ratios.push_back(ratio_of(times.case_us[i], times.base_us[i]));
  }
  measurement->time_us = Summarise(times.case_us);
  measurement->base_us = Summarise(times.base_us);
  measurement->ratio = ratio_of(measurement->time_us.median, measurement->base_us.median);
  const Summary spread = Summarise(std::move(ratios));
  measurement->ratio_p10 = spread.p10;
  measurement->ratio_p90 = spread.p90;
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      break;
  }
  return "fp16";
}

}  // namespace specd::bench
