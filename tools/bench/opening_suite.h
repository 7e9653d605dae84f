// OpeningSuite measures the rounds of one engine while another opens sequences, for
// `specd-bench opening`.
//
// A longer prompt makes an opening take longer. The rounds of other engines must not become longer
// with it. All cases are measured in short slices, one case after the other, so that a disturbance
// of the machine disturbs all of them. The suite runs on the calling thread, beside a verify thread
// and a control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/machine.h"
#include "tools/bench/measurement.h"
#include "tools/bench/opening_scene.h"

namespace specd::bench {

struct OpeningCase {
  std::string_view name;
  size_t num_prompt_ids;  // 0: the neighbour opens nothing
  std::string_view summary;
};

std::span<const OpeningCase> OpeningCases();

// The case that `million` is compared with.
inline constexpr std::string_view kTinyOpenings = "tiny";

struct OpeningMeasurement {
  const OpeningCase* opening_case = nullptr;
  Summary round_us = {};
  Summary opening_us = {};  // no samples if the neighbour opens nothing
  // Ratios to the case kTinyOpenings; 0 for other cases than `million`.
  double ratio = 0;
  double ratio_p99 = 0;
  double ratio_max = 0;
  ForeignLoad load = {};
};

class OpeningSuite {
 public:
  using OnProgress = std::function<void(std::string_view)>;

  // `seconds` are of each case.
  OpeningSuite(double seconds, OnProgress on_progress)
      : seconds_(seconds), on_progress_(std::move(on_progress)) {}

  absl::StatusOr<std::vector<OpeningMeasurement>> Run();

 private:
  struct Samples {
    std::vector<double> rounds_us;
    std::vector<double> openings_us;
  };
  absl::Status RunSlice(const OpeningCase& opening_case, OpeningScene* scene, Samples* samples);

  const double seconds_;
  const OnProgress on_progress_;
};

}  // namespace specd::bench
