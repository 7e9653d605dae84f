// The grid lists sizes, row shapes and schedules of emulated blocks for conformance tests.
//
// The contract asks for 50 schedules up to 4,096 ids and 3 above.
// A sanitizer gets fewer sizes, each under all schedules.
#pragma once

#include <spdlog/fmt/fmt.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>

#include "tests/gpu/emulation/emulated_block.h"
#include "tests/support/grid_size.h"
#include "tests/support/round_case.h"

namespace specd {

// Sizes around words of a mask, steps and tiles; then vocabularies of models, primes, and the
// largest size.
inline constexpr int32_t kEverySmallSize[] = {1,   2,   3,   7,    31,   32,   33,   255,
                                              256, 257, 300, 2047, 2048, 2049, 4095, 4096};
inline constexpr int32_t kEveryLargeSize[] = {4097,  20000,  32000,  50257,  65537,
                                              99991, 128256, 151936, 262144, 1 << 20};
inline constexpr int32_t kFewSmallSizes[] = {1, 257, 2049};
inline constexpr int32_t kFewLargeSizes[] = {4097, 20000};

using VocabSizes = std::span<const int32_t>;
inline constexpr VocabSizes kSmallSizes =
    kIsSanitized ? VocabSizes(kFewSmallSizes) : VocabSizes(kEverySmallSize);
inline constexpr VocabSizes kLargeSizes =
    kIsSanitized ? VocabSizes(kFewLargeSizes) : VocabSizes(kEveryLargeSize);
inline constexpr int32_t kSmallSchedules = 50;
inline constexpr int32_t kLargeSchedules = 3;

struct Shape {
  const char* name;
  DType dtype = DType::kFloat32;
  std::optional<DType> draft_dtype = {};
  RowKind target_kind = RowKind::kLogits;
  RowKind draft_kind = RowKind::kLogits;
  bool scaled = false;
  bool plain = false;
  bool sampled = false;
};
inline constexpr Shape kShapes[] = {
    {.name = "fp32"},
    {.name = "bf16", .dtype = DType::kBFloat16},
    {.name = "fp16", .dtype = DType::kFloat16},
    {.name = "scaled bf16", .dtype = DType::kBFloat16, .scaled = true},
    {.name = "plain fp16", .dtype = DType::kFloat16, .plain = true},
    {.name = "sampled bf16", .dtype = DType::kBFloat16, .sampled = true},
    {.name = "sampled fp32 and bf16",
     .draft_dtype = DType::kBFloat16,
     .plain = true,
     .sampled = true},
    {.name = "probabilities",
     .target_kind = RowKind::kProbabilities,
     .draft_kind = RowKind::kProbabilities},
    {.name = "final probabilities",
     .target_kind = RowKind::kFinalProbabilities,
     .draft_kind = RowKind::kFinalProbabilities},
    {.name = "logits and final drafts", .draft_kind = RowKind::kFinalProbabilities},
};
inline constexpr int32_t kNumShapes = std::size(kShapes);

// A round of this shape. Size and shape determine the seed.
inline RoundCase::Options OptionsOf(const Shape& shape, int32_t vocab_size, int32_t batch,
                                    int32_t max_draft) {
  const auto shape_index = static_cast<uint64_t>(&shape - kShapes);
  return {.vocab_size = vocab_size,
          .batch = batch,
          .max_draft = max_draft,
          .dtype = shape.dtype,
          .draft_dtype = shape.draft_dtype,
          .seed = static_cast<uint64_t>(vocab_size) * kNumShapes + shape_index,
          .target_kind = shape.target_kind,
          .draft_kind = shape.draft_kind,
          .scaled = shape.scaled,
          .plain = shape.plain,
          .sampled = shape.sampled};
}

inline constexpr int32_t kBlockSizes = 32;  // 32, 64, ... 1024
inline constexpr int32_t kBlockCounts[] = {1, 2, 3, 5, 12};

// Schedule number `i`. Block sizes repeat, so 32 schedules in a row have all of them.
inline EmulationOptions ScheduleAt(int32_t i, uint64_t seed) {
  return {.num_threads = 32 * (1 + i % kBlockSizes),
          .schedule_seed = seed + static_cast<uint64_t>(i) * 1000003,
          .num_blocks = kBlockCounts[static_cast<size_t>(i) % std::size(kBlockCounts)]};
}
// Every fifth schedule takes the next of all block sizes; the others take small sizes, which cost
// less.
inline EmulationOptions QuickScheduleAt(int32_t i, uint64_t seed) {
  EmulationOptions schedule = ScheduleAt(i / 5, seed + static_cast<uint64_t>(i));
  if (i % 5 != 0) schedule.num_threads = 32 * (1 + i % 7);
  return schedule;
}

inline std::string NameOf(const Shape& shape, int32_t vocab_size,
                          const EmulationOptions& schedule) {
  return fmt::format("{}, V = {}, {} blocks of {} threads, seed {}", shape.name, vocab_size,
                     schedule.num_blocks, schedule.num_threads, schedule.schedule_seed);
}

}  // namespace specd
