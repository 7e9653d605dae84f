// RunAll and OutputsOf run rounds and transforms by a backend for tests, and return all of their
// answers.
//
// MixedTransforms and TransformRows are transforms of every kind, over rows of every kind.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/support/round_case.h"

namespace specd {

inline std::vector<std::string> RunAll(Backend& backend, RoundCase& round,
                                       const RoundBatch& batch) {
  const absl::Status status = backend.Run(batch);
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  std::vector<std::string> answers;
  for (int32_t i = 0; i < batch.num_tasks; ++i) answers.push_back(round.answer(i));
  return answers;
}
inline std::vector<std::string> RunAll(Backend& backend, RoundCase& round) {
  return RunAll(backend, round, round.All());
}

// The bits of the output of each transform, and its status as the last element.
inline std::vector<std::vector<uint32_t>> OutputsOf(Backend& backend, const TensorView& rows,
                                                    std::vector<RowTransform> transforms) {
  std::vector<std::vector<float>> outputs(
      transforms.size(), std::vector<float>(static_cast<size_t>(rows.vocab_size), -5));
  std::vector<OutcomeStatus> statuses(transforms.size(), OutcomeStatus::kBadToken);
  for (size_t i = 0; i < transforms.size(); ++i) transforms[i].out = outputs[i].data();
  const absl::Status status = backend.Transform(
      {rows, transforms.data(), static_cast<int32_t>(transforms.size()), statuses.data()});
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  std::vector<std::vector<uint32_t>> bits(transforms.size());
  for (size_t i = 0; i < transforms.size(); ++i) {
    for (const float x : outputs[i]) bits[i].push_back(BitsOf(x));
    bits[i].push_back(static_cast<uint32_t>(statuses[i]));
  }
  return bits;
}

inline constexpr uint32_t kNumTransformRows = 5;

// Rows of logits; the last three hold a NaN, an infinity, and nothing. If V is odd, no row after
// the first is aligned.
inline RowMatrix TransformRows(DType dtype, int32_t vocab_size) {
  std::mt19937_64 random(static_cast<uint64_t>(vocab_size));
  RowMatrix rows({.dtype = dtype,
                  .vocab_size = vocab_size,
                  .num_rows = kNumTransformRows,
                  .padding = 3,
                  .offset = 1});
  for (int64_t row = 0; row < kNumTransformRows; ++row) {
    std::vector<double> values = RandomLogits(random, vocab_size);
    if (row == 2) values[random() % values.size()] = NAN;
    if (row == 3) values[random() % values.size()] = INFINITY;
    if (row == 4) std::fill(values.begin(), values.end(), -INFINITY);
    rows.Set(row, values);
  }
  return rows;
}

inline std::vector<RowTransform> MixedTransforms(size_t count) {
  std::vector<RowTransform> transforms(count);
  for (size_t i = 0; i < count; ++i) {
    transforms[i].row = static_cast<uint32_t>(i * 3) % kNumTransformRows;
    transforms[i].scale = 0.5f + 0.5f * static_cast<float>(i % 4);
    if (i % 2 == 1) transforms[i].filters.top_k = 50;
    if (i % 3 == 1) transforms[i].filters.top_p = kTopPOff / 8 * 7;
    if (i % 7 == 3) transforms[i].filters.min_p = -6;
    transforms[i].filters.joint = i % 4 == 1;
    transforms[i].as_logits = i % 4 == 3;
  }
  return transforms;
}

}  // namespace specd
