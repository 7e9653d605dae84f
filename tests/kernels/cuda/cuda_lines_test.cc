// A real device against the CPU, bit for bit: suite "gpu". Small rounds of many kinds, for lines of
// the kernels that the other cases run seldom or never: rows of every type that arrive as anything,
// records of them, transforms of rows that are no plain logits, and lists of edits that fill a
// fetch.
#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bodies/tiles.h"
#include "kernels/core/elements.h"
#include "tests/kernels/cuda/device_comparison.h"
#include "tests/kernels/cuda/record_difference.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

// How rows arrive.
struct Arrival {
  RowKind target;
  RowKind draft;
  bool scaled = false;
  bool renormalise = false;
  float cap = 15;
};
constexpr Arrival kArrivals[] = {
    {RowKind::kLogits, RowKind::kLogits},
    {RowKind::kLogits, RowKind::kLogits, true},
    // A divisor beyond 2^60 takes another way through a division.
    {RowKind::kLogits, RowKind::kLogits, true, false, 0x1p70f},
    {RowKind::kProbabilities, RowKind::kProbabilities, false, true},
    {RowKind::kFinalProbabilities, RowKind::kFinalProbabilities, false, true},
    {RowKind::kLogits, RowKind::kProbabilities, true, true},
    {RowKind::kProbabilities, RowKind::kLogits, true, true},
    // Rows of 16 bits are rounded, so that their sums are far enough from 1 to be bad.
    {RowKind::kProbabilities, RowKind::kFinalProbabilities},
};

ElementRules RulesOf(const Arrival& arrival) {
  ElementRules rules{.kind = arrival.target};
  if (arrival.scaled && arrival.target == RowKind::kLogits) {
    rules.scale = 0.5f;
    rules.cap = arrival.cap;
  }
  rules.renormalise = arrival.renormalise && arrival.target != RowKind::kLogits;
  return rules;
}

// Seven rows: an ordinary one, one whose weights are powers of two from 1 down to nothing, and rows
// with one element, none, many that tie, a NaN, and an infinity.
RowMatrix RowsThatArrive(const Arrival& arrival, DType dtype, int32_t vocab_size) {
  std::mt19937_64 random(static_cast<uint64_t>(vocab_size) + 17);
  RowMatrix rows({.dtype = dtype,
                  .vocab_size = vocab_size,
                  .num_rows = 7,
                  .padding = 6,  // rows begin at every address of their type
                  .offset = 0,
                  .rules = RulesOf(arrival)});
  const bool probabilities = arrival.target != RowKind::kLogits;
  for (int64_t row = 0; row < 7; ++row) {
    std::vector<double> values = RandomLogits(random, vocab_size);
    if (row == 1) {
      for (double& value : values) value = -static_cast<double>(random() % 171);
    }
    if (row == 4) std::fill(values.begin(), values.end(), 1.0);
    if (probabilities) {
      for (double& value : values) value = std::exp2(value) / 64;
    }
    const double nothing = probabilities ? 0.0 : -INFINITY;
    if (row == 2 || row == 3) std::fill(values.begin(), values.end(), nothing);
    if (row == 2) values[random() % values.size()] = 0.5;
    if (row == 5) values[random() % values.size()] = NAN;
    if (row == 6) values[random() % values.size()] = INFINITY;
    rows.Set(row, values);
  }
  return rows;
}

// Every filter alone and all together, over every row in turn. Where many elements tie, top_k ends
// anywhere among them.
std::vector<RowTransform> FilteredTransforms(int32_t vocab_size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<RowTransform> transforms;
  const int32_t most = std::max(vocab_size - 1, 1);
  const uint32_t num_per_kind = Quick() ? 4 : 7;
  for (uint32_t i = 0; i < 6 * num_per_kind; ++i) {
    RowTransform transform;
    transform.row = (i + seed) % 7;
    transform.scale = i % 5 == 0 ? 0.5f : static_cast<float>(i % 5);
    const uint32_t kind = i / num_per_kind;
    const auto any = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(most));
    if (kind == 1 || kind == 5) transform.filters.top_k = i % 3 == 0 ? 3 : any;
    if (kind == 2 || kind == 5) transform.filters.top_p = kTopPOff / 16 * (i % 2 == 0 ? 15 : 5);
    if (kind == 3 || kind == 5) transform.filters.min_p = i % 2 == 0 ? -9.0f : -1.0f;
    if (kind == 4) transform.filters = {.top_k = any, .top_p = kTopPOff / 8 * 7, .joint = true};
    transform.as_logits = i % 4 == 1;
    transforms.push_back(transform);
  }
  return transforms;
}

// Makes tasks whose first two places allow end ids alone, below min_tokens, which yields (CONTRACT
// §3, step 3). The draft's token is the best of them there, so that it stands. The third was
// sampled and falls. No warp judges a place that yields ahead, so that later launches meet it
// again, and the second uses memory that the first has used.
class YieldingTasks {
 public:
  YieldingTasks(int32_t vocab_size, int32_t num_ends, int32_t num_tasks)
      : step_(vocab_size / num_ends),
        num_ends_(num_ends),
        mask_((static_cast<size_t>(vocab_size) + 31) / 32) {
    for (int32_t i = 0; i < num_ends; ++i) {
      const TokenId end = EndAt(i);
      mask_[static_cast<size_t>(end / 32)] |= 1u << (end % 32);
      ends_.push_back({.id = end, .flags = kEditEnd});
    }
    for (int32_t place = 0; place < kNumYielding; ++place) {
      places_[place].grammar_mask = mask_.data();
      places_[place].below_min_tokens = true;
      places_with_ends_[place] = places_[place];
      places_with_ends_[place].overrides = ends_.data();
      places_with_ends_[place].num_overrides = num_ends;
    }
    chains_.resize(static_cast<size_t>(num_tasks));
  }

  void Change(RoundCase* round) {
    const TensorView target = round->All().target;
    for (size_t i = 0; i < chains_.size(); ++i) {
      Chain& chain = chains_[i];
      Task& task = round->task(static_cast<int32_t>(i));
      const auto row = static_cast<uint32_t>(i);
      for (uint32_t place = 0; place <= kNumYielding + 1; ++place) {
        chain.target_rows[place] = (row + 4 * place) % RoundCase::kNanRow;
        chain.draft_rows[place] = (row + 2 + place) % RoundCase::kNanRow;
      }
      for (int32_t place = 0; place < kNumYielding; ++place) {
        chain.tokens[place] = BestEnd(RowAt(target, chain.target_rows[place]));
      }
      chain.tokens[kNumYielding] =
          static_cast<TokenId>((7 * i + 1) % static_cast<size_t>(step_ * num_ends_));
      task.kind = TaskKind::kVerify;
      task.method = VerifyMethod::kToken;
      task.target_scale = 16;
      task.draft = {.num_nodes = kNumYielding + 1,
                    .tokens = chain.tokens,
                    .kinds = kKinds,
                    .target_rows = chain.target_rows,
                    .draft_rows = chain.draft_rows};
      // The sequence or the place says which ids are ends.
      const bool by_sequence = i % 8 >= 4;
      task.edits = {};
      if (by_sequence) {
        task.edits.edits = ends_.data();
        task.edits.num_edits = num_ends_;
      }
      task.places = by_sequence ? places_ : places_with_ends_;
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
  static constexpr int32_t kNumYielding = 2;
  struct Chain {
    TokenId tokens[kNumYielding + 1];
    uint32_t target_rows[kNumYielding + 2];
    uint32_t draft_rows[kNumYielding + 2];
  };
  static constexpr DraftKind kKinds[] = {DraftKind::kOneHot, DraftKind::kOneHot,
                                         DraftKind::kSampled};

  TokenId EndAt(int32_t i) const { return step_ / 2 + i * step_; }
  TokenId BestEnd(const RowView& row) const {
    const auto below = [&](const TokenEdit& a, const TokenEdit& b) {
      return LoadElement(row, a.id) < LoadElement(row, b.id);
    };
    return std::max_element(ends_.begin(), ends_.end(), below)->id;
  }

  int32_t step_;
  int32_t num_ends_;
  std::vector<uint32_t> mask_;
  std::vector<TokenEdit> ends_;
  PlaceEdits places_[kNumYielding + 2];
  PlaceEdits places_with_ends_[kNumYielding + 2];
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
                                    .sampled = vocab_size == 33,
                                    .cap = arrival.cap});
          }
        }
      }
    });
  }

  TEST_CASE("CUDA transforms: rows that arrive as anything, under every filter") {
    OnDevice([](Comparison& comparison) {
      const std::vector<int32_t> sizes =
          Quick() ? std::vector<int32_t>{300, 4397} : std::vector<int32_t>{1, 300, 4397, 32000};
      uint64_t seed = 990;
      for (const int32_t vocab_size : sizes) {
        comparison.Prepare({vocab_size, 8, 0});
        for (const Arrival& arrival : kArrivals) {
          for (const DType dtype : kDTypes) {
            const RowMatrix rows = RowsThatArrive(arrival, dtype, vocab_size);
            const std::string difference =
                comparison.TransformDifference(rows.view(), FilteredTransforms(vocab_size, ++seed));
            CHECK_MESSAGE(difference.empty(), "dtype ", static_cast<int>(dtype), " rows ",
                          static_cast<int>(arrival.target), " vocab ", vocab_size, ": ",
                          difference);
          }
        }
      }
    });
  }

  TEST_CASE("CUDA rounds: places that yield before a token that falls") {
    OnDevice([](Comparison& comparison) {
      for (const DType dtype : kDTypes) {
        for (const int32_t num_ends : {1, 300}) {
          // With more than eight tiles, several threads have their numbers.
          const bool has_many_tiles = dtype == DType::kBFloat16 && num_ends > 1;
          const RoundCase::Options options{.vocab_size = has_many_tiles ? 9 * kTileSize : 2305,
                                           .batch = has_many_tiles ? 4
                                                    : Quick()      ? 8
                                                                   : 40,
                                           .max_draft = 3,
                                           .dtype = dtype,
                                           .seed = 970,
                                           .sampled = true};
          YieldingTasks tasks(options.vocab_size, num_ends, options.batch);
          CheckRound(comparison, options, [&](RoundCase& round) { tasks.Change(&round); });
        }
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

  TEST_CASE("CUDA rounds that are recorded: small ones of every type and arrival") {
    const std::unique_ptr<Backend> device = DeviceOrReason();
    if (device == nullptr) return;
    const auto cpu = MakeBackend("cpu");
    REQUIRE(cpu.ok());
    DecisionCounts counts;
    std::mt19937_64 random(930);
    for (const Arrival& arrival : kArrivals) {
      for (const DType dtype : kDTypes) {
        for (const int32_t vocab_size : {3, 33, 2305, 4397}) {
          // Divisors beyond 2^60 take another way through a division than others.
          const RoundCase::Options options{.vocab_size = vocab_size,
                                           .batch = Quick() ? 8 : 32,
                                           .max_draft = 3,
                                           .dtype = dtype,
                                           .seed = random(),
                                           .target_kind = arrival.target,
                                           .draft_kind = arrival.draft,
                                           .scaled = arrival.scaled,
                                           .renormalise = arrival.renormalise,
                                           .grammar_masks = vocab_size != 33,
                                           .plain = vocab_size == 33,
                                           .sampled = vocab_size == 4397,
                                           .cap = arrival.cap,
                                           .repetition = vocab_size == 3 ? 0x1p70f : 1.25f};
          for (Backend* const backend : {device.get(), cpu->get()}) {
            REQUIRE(backend->Prepare({vocab_size, options.batch, options.max_draft}).ok());
          }
          const std::string difference = RecordDifference(*device, **cpu, options, &counts);
          CHECK_MESSAGE(difference.empty(), NameOf(options), ": ", difference);
        }
      }
    }
    CHECK(counts.HasAll());
    MESSAGE("compared ", counts.drawn, " draws");
  }
}

}  // namespace
}  // namespace specd
