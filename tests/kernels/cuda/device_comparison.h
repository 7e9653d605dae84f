// Comparison compares rounds and transforms on a device with the CPU's, bit for bit, for the suite
// "gpu".
//
//   OnDevice([](Comparison& comparison) { CheckRound(comparison, {.vocab_size = 7, .batch = 2});
//   });
#pragma once

#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/cuda/device_or_reason.h"
#include "tests/kernels/cuda/run_backend.h"
#include "tests/support/round_case.h"

namespace specd {

inline constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

inline std::string NameOf(const RoundCase::Options& options) {
  return fmt::format(
      "dtype {} vocab {} batch {} drafts {} rows {}/{} scaled {} renormalise {} plain {} seed {}",
      static_cast<int>(options.dtype), options.vocab_size, options.batch, options.max_draft,
      static_cast<int>(options.target_kind), static_cast<int>(options.draft_kind), options.scaled,
      options.renormalise, options.plain, options.seed);
}

// Two backends side by side, and their differences.
class Comparison {
 public:
  Comparison(std::unique_ptr<Backend> device, std::unique_ptr<Backend> cpu)
      : device_(std::move(device)), cpu_(std::move(cpu)) {}

  int64_t num_compared() const { return num_compared_; }

  // Prepares both backends for rounds up to these sizes.
  void Prepare(BackendLimits limits) {
    limits.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
    for (Backend* backend : {cpu_.get(), device_.get()}) {
      const absl::Status status = backend->Prepare(limits);
      REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    }
  }

  // The whole round on the CPU, then its parts on the device, in the order of `places`. Empty where
  // every answer is the same; otherwise how many differ and the first that does.
  std::string RoundDifference(RoundCase& round, const std::vector<std::vector<int32_t>>& parts) {
    const std::vector<std::string> expected = RunAll(*cpu_, round);
    const absl::StatusOr<const int32_t*> kept = device_->KeepColumns(round.columns());
    REQUIRE(kept.ok());
    round.KeepColumnsAt(*kept);
    std::string first;
    int num_different = 0;
    for (const std::vector<int32_t>& places : parts) {
      const std::vector<std::string> answers = RunAll(*device_, round, round.Some(places));
      for (size_t i = 0; i < places.size(); ++i, ++num_compared_) {
        const std::string& wanted = expected[static_cast<size_t>(places[i])];
        if (answers[i] == wanted || num_different++ > 0) continue;
        first = fmt::format("sequence {} at {} of {}\n  device: {}\n  CPU:    {}", places[i], i,
                            places.size(), answers[i], wanted);
      }
    }
    return num_different == 0 ? "" : fmt::format("{} differ, first {}", num_different, first);
  }

  // The same for transforms: every element of every output, also of bad rows.
  std::string TransformDifference(const TensorView& rows,
                                  const std::vector<RowTransform>& transforms) {
    const auto expected = OutputsOf(*cpu_, rows, transforms);
    const auto outputs = OutputsOf(*device_, rows, transforms);
    for (size_t i = 0; i < outputs.size(); ++i, ++num_compared_) {
      for (size_t id = 0; id < outputs[i].size(); ++id) {
        if (outputs[i][id] == expected[i][id]) continue;
        return fmt::format("transform {}, element {}: device {:a}, CPU {:a}", i, id,
                           FloatOf(outputs[i][id]), FloatOf(expected[i][id]));
      }
    }
    return "";
  }

 private:
  const std::unique_ptr<Backend> device_;
  const std::unique_ptr<Backend> cpu_;
  int64_t num_compared_ = 0;
};

// Runs `compare` with the device, if there is one.
inline void OnDevice(const std::function<void(Comparison&)>& compare) {
  std::unique_ptr<Backend> device = DeviceOrReason();
  if (device == nullptr) return;
  auto cpu = MakeBackend("cpu");
  REQUIRE(cpu.ok());
  Comparison comparison(std::move(device), std::move(*cpu));
  compare(comparison);
  CHECK(comparison.num_compared() > 0);
  MESSAGE("compared ", comparison.num_compared(), " answers");
}

// A round of random sequences, after `change`.
inline void CheckRound(
    Comparison& comparison, const RoundCase::Options& options,
    const std::function<void(RoundCase&)>& change = [](RoundCase&) {}) {
  comparison.Prepare({options.vocab_size, options.batch, options.max_draft});
  RoundCase round(options);
  change(round);
  const std::string difference = comparison.RoundDifference(round, {InOrder(options.batch)});
  CHECK_MESSAGE(difference.empty(), NameOf(options), ": ", difference);
}

}  // namespace specd
