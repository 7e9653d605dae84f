// A real device against the CPU, bit for bit: suite "gpu". Small rounds of many kinds, for lines of
// the kernels that the other cases run seldom or never: rows of every type that arrive as anything,
// transforms of rows that are no plain logits, and lists of edits that fill a fetch. The lines of
// nvcc's PTX that ran are counted (tests/gpu/ptx/tests/coverage_test.py).
#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/cuda/device_comparison.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

// How rows arrive.
struct Arrival {
  RowKind target;
  RowKind draft;
  bool scaled = false;
  bool renormalise = false;
};
constexpr Arrival kArrivals[] = {
    {RowKind::kLogits, RowKind::kLogits},
    {RowKind::kLogits, RowKind::kLogits, true},
    {RowKind::kProbabilities, RowKind::kProbabilities, false, true},
    {RowKind::kFinalProbabilities, RowKind::kFinalProbabilities, false, true},
    {RowKind::kLogits, RowKind::kProbabilities, true, true},
    {RowKind::kProbabilities, RowKind::kLogits, true, true},
};

ElementRules RulesOf(const Arrival& arrival) {
  ElementRules rules{.kind = arrival.target};
  if (arrival.scaled && arrival.target == RowKind::kLogits) {
    rules.scale = 0.5f;
    rules.cap = 15.0f;
  }
  rules.renormalise = arrival.renormalise && arrival.target != RowKind::kLogits;
  return rules;
}

// Six rows: two ordinary ones, and rows with one element, none, many that tie, and a NaN.
RowMatrix RowsThatArrive(const Arrival& arrival, DType dtype, int32_t vocab_size) {
  std::mt19937_64 random(static_cast<uint64_t>(vocab_size) + 17);
  RowMatrix rows({.dtype = dtype,
                  .vocab_size = vocab_size,
                  .num_rows = 6,
                  .padding = 5,
                  .offset = 0,
                  .rules = RulesOf(arrival)});
  const bool probabilities = arrival.target != RowKind::kLogits;
  for (int64_t row = 0; row < 6; ++row) {
    std::vector<double> values = RandomLogits(random, vocab_size);
    if (row == 4) std::fill(values.begin(), values.end(), 1.0);
    if (probabilities) {
      for (double& value : values) value = std::exp2(value) / 64;
    }
    const double nothing = probabilities ? 0.0 : -INFINITY;
    if (row == 2 || row == 3) std::fill(values.begin(), values.end(), nothing);
    if (row == 2) values[random() % values.size()] = 0.5;
    if (row == 5) values[random() % values.size()] = NAN;
    rows.Set(row, values);
  }
  return rows;
}

// Every filter alone and all together, over every row.
std::vector<RowTransform> FilteredTransforms(int32_t vocab_size) {
  std::vector<RowTransform> transforms;
  const int32_t most = std::max(vocab_size - 1, 1);
  for (uint32_t i = 0; i < 36; ++i) {
    RowTransform transform;
    transform.row = i % 6;
    transform.scale = 0.5f + static_cast<float>(i % 5);
    const uint32_t kind = i / 6;
    if (kind == 1 || kind == 5) transform.filters.top_k = i % 2 == 0 ? most : 3;
    if (kind == 2 || kind == 5) transform.filters.top_p = kTopPOff / 16 * (i % 2 == 0 ? 15 : 5);
    if (kind == 3 || kind == 5) transform.filters.min_p = i % 2 == 0 ? -9.0f : -1.0f;
    if (kind == 4) transform.filters = {.top_k = most, .top_p = kTopPOff / 8 * 7, .joint = true};
    transform.as_logits = i % 4 == 1;
    transforms.push_back(transform);
  }
  return transforms;
}

// Makes tasks whose first place allows an end id alone, below min_tokens, which yields (CONTRACT
// §3, step 3): the draft's first token is that id and stands. The second was sampled and may fall.
// No warp judges the first place ahead, so that later launches meet it again.
class YieldingTasks {
 public:
  YieldingTasks(int32_t vocab_size, int32_t num_tasks)
      : end_(vocab_size / 2), mask_((static_cast<size_t>(vocab_size) + 31) / 32) {
    mask_[static_cast<size_t>(end_ / 32)] = 1u << (end_ % 32);
    only_end_ = {.id = end_, .flags = kEditEnd};
    places_[0].overrides = &only_end_;
    places_[0].num_overrides = 1;
    places_[0].grammar_mask = mask_.data();
    places_[0].below_min_tokens = true;
    chains_.resize(static_cast<size_t>(num_tasks));
  }

  void Change(RoundCase* round) {
    for (size_t i = 0; i < chains_.size(); ++i) {
      Chain& chain = chains_[i];
      Task& task = round->task(static_cast<int32_t>(i));
      const auto row = static_cast<uint32_t>(i);
      chain.tokens[0] = end_;
      chain.tokens[1] = static_cast<TokenId>((7 * i + 1) % static_cast<size_t>(end_));
      for (uint32_t place = 0; place < 3; ++place) {
        chain.target_rows[place] = (row + 4 * place) % RoundCase::kNanRow;
        chain.draft_rows[place] = (row + 2 + place) % RoundCase::kNanRow;
      }
      task.kind = TaskKind::kVerify;
      task.method = VerifyMethod::kToken;
      task.draft = {.num_nodes = 2,
                    .tokens = chain.tokens,
                    .kinds = kKinds,
                    .target_rows = chain.target_rows,
                    .draft_rows = chain.draft_rows};
      task.edits = {};
      task.places = places_;
      task.scores = {};
      task.draft_edits = false;
      task.target_filters = {};
      task.draft_filters = {};
      if (i % 4 == 1) task.target_filters.top_k = 40;
      if (i % 4 == 2) task.target_filters.top_p = kTopPOff / 16 * 15;
      if (i % 4 == 3) task.target_filters.min_p = -8;
    }
  }

 private:
  struct Chain {
    TokenId tokens[2];
    uint32_t target_rows[3];
    uint32_t draft_rows[3];
  };
  static constexpr DraftKind kKinds[] = {DraftKind::kOneHot, DraftKind::kSampled};

  TokenId end_;
  std::vector<uint32_t> mask_;
  TokenEdit only_end_;
  PlaceEdits places_[3];
  std::vector<Chain> chains_;
};

TEST_SUITE("gpu") {
  TEST_CASE("CUDA rounds: small ones of every type and arrival") {
    OnDevice([](Comparison& comparison) {
      std::mt19937_64 random(900);
      const std::vector<int32_t> sizes =
          Quick() ? std::vector<int32_t>{33, 2305} : std::vector<int32_t>{1, 33, 257, 2305, 6145};
      for (const Arrival& arrival : kArrivals) {
        for (const DType dtype : kDTypes) {
          for (const int32_t vocab_size : sizes) {
            CheckRound(comparison, {.vocab_size = vocab_size,
                                    .batch = Quick() ? 10 : 40,
                                    .max_draft = 3,
                                    .dtype = dtype,
                                    .seed = random(),
                                    .target_kind = arrival.target,
                                    .draft_kind = arrival.draft,
                                    .scaled = arrival.scaled,
                                    .renormalise = arrival.renormalise,
                                    .grammar_masks = true,
                                    .sampled = vocab_size == 33});
          }
        }
      }
    });
  }

  TEST_CASE("CUDA transforms: rows that arrive as anything, under every filter") {
    OnDevice([](Comparison& comparison) {
      const std::vector<int32_t> sizes =
          Quick() ? std::vector<int32_t>{300, 4397} : std::vector<int32_t>{1, 300, 4397, 32000};
      for (const int32_t vocab_size : sizes) {
        comparison.Prepare({vocab_size, 8, 0});
        for (const Arrival& arrival : kArrivals) {
          for (const DType dtype : kDTypes) {
            const RowMatrix rows = RowsThatArrive(arrival, dtype, vocab_size);
            const std::string difference =
                comparison.TransformDifference(rows.view(), FilteredTransforms(vocab_size));
            CHECK_MESSAGE(difference.empty(), "dtype ", static_cast<int>(dtype), " rows ",
                          static_cast<int>(arrival.target), " vocab ", vocab_size, ": ",
                          difference);
          }
        }
      }
    });
  }

  TEST_CASE("CUDA rounds: a place that yields before a token that falls") {
    OnDevice([](Comparison& comparison) {
      for (const DType dtype : kDTypes) {
        const RoundCase::Options options{.vocab_size = 2305,
                                         .batch = Quick() ? 8 : 40,
                                         .max_draft = 2,
                                         .dtype = dtype,
                                         .seed = 970,
                                         .sampled = true};
        YieldingTasks tasks(options.vocab_size, options.batch);
        CheckRound(comparison, options, [&](RoundCase& round) { tasks.Change(&round); });
      }
    });
  }

  // The fetch is as wide as a usual round. Its threads take several pieces of this one.
  TEST_CASE("CUDA rounds: one sequence with an edit for each id") {
    OnDevice([](Comparison& comparison) {
      const int32_t vocab_size = Quick() ? 9000 : 151936;
      std::vector<TokenEdit> edits;
      for (int32_t id = 0; id < vocab_size; ++id) {
        edits.push_back({id, kEditSeen, static_cast<float>(id % 9) / 4 - 1, uint32_t(id) % 5});
      }
      CheckRound(comparison, {.vocab_size = vocab_size, .batch = 1, .max_draft = 1, .seed = 950},
                 [&](RoundCase& round) {
                   round.MakeVerify(0);
                   Task& task = round.task(0);
                   task.draft.target_argmax = nullptr;
                   task.edits.edits = edits.data();
                   task.edits.num_edits = vocab_size;
                   task.edits.penalties = {.repetition = 1.1f, .frequency = 0.2f};
                 });
    });
  }
}

}  // namespace
}  // namespace specd
