// Records of rounds at the edges of their numbers, on a real device against the CPU, bit for bit:
// suite "gpu". Rows of many tiles fill the arrays that hold a number for each tile. Whole logits
// make weights that are powers of two, down to the last that counts and below, and elements that
// tie wherever a filter cuts. Coins lie at the ends of intervals: with the coin next to it the CPU
// gives another answer. An answer therefore shows a mass that is off by one of its 2^40 units.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bodies/tiles.h"
#include "kernels/core/philox.h"
#include "tests/kernels/cuda/device_comparison.h"
#include "tests/kernels/cuda/record_difference.h"

namespace specd {
namespace {

std::vector<RoundCase::Options> EdgeRounds() {
  std::vector<RoundCase::Options> rounds;
  uint64_t seed = 1500;
  for (const DType dtype : kDTypes) {
    for (const bool sampled : {false, true}) {
      rounds.push_back({.vocab_size = sampled ? 2305 : 4397,
                        .batch = Quick() ? 12 : 48,
                        .max_draft = 2,
                        .dtype = dtype,
                        .seed = ++seed,
                        .grammar_masks = true,
                        .sampled = sampled,
                        .whole = true});
    }
  }
  // A cap that leaves two values makes thousands of elements equal.
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    rounds.push_back({.vocab_size = 4397,
                      .batch = Quick() ? 20 : 48,
                      .max_draft = 2,
                      .dtype = dtype,
                      .seed = ++seed,
                      .scaled = true,
                      .cap = 0x1p-70f});
  }
  return rounds;
}

// Filters whose cuts lie anywhere in a row. Sampled rounds have none without them.
void CutAnywhere(RoundCase& round, const RoundCase::Options& options) {
  std::mt19937_64 random(options.seed);
  for (int32_t i = 0; i < options.batch; ++i) {
    Task& task = round.task(i);
    if (task.draft.target_argmax != nullptr || task.kind == TaskKind::kScore) continue;
    for (Filters* const filters : {&task.target_filters, &task.draft_filters}) {
      // Where elements tie by thousands, a number of them is what cuts.
      const uint64_t kind = options.scaled ? 0 : random() % 6;
      const uint64_t drawn = random();
      if (kind < 2) {
        *filters = {.top_k = static_cast<int32_t>(
                        1 + drawn % static_cast<uint64_t>(kind == 0 ? options.vocab_size : 300))};
      }
      if (kind == 2) *filters = {.top_p = drawn % kTopPOff};
      if (kind == 3) *filters = {.min_p = -static_cast<float>(drawn % 64)};
    }
  }
}

// Coins for the tasks of a round, at the ends of intervals that a bisection on the CPU finds. A
// task uses one coin for all its decisions.
class EdgeCoins {
 public:
  // Gives the coins to the tasks of `round`, which the coins must outlive.
  EdgeCoins(Backend& cpu, RoundCase* round, const RoundCase::Options& options)
      : options_(options), injected_(static_cast<size_t>(options.batch)) {
    const auto answers = [&](const Coins& coins) {
      Give(coins, round);
      REQUIRE(cpu.Run(round->All()).ok());
      std::vector<std::string> texts;
      for (int32_t i = 0; i < options.batch; ++i) texts.push_back(round->answer(i));
      return texts;
    };
    std::mt19937_64 random(options.seed);
    const auto draw = [&] {
      Coins coins(injected_.size());
      for (uint64_t& coin : coins) coin = random() >> (64 - kCoinBits);
      return coins;
    };
    Coins same = draw();
    Coins other = same;
    const std::vector<std::string> texts = answers(same);
    for (int attempt = 0; attempt < 4; ++attempt) {
      const Coins drawn = draw();
      const std::vector<std::string> drawn_texts = answers(drawn);
      for (size_t i = 0; i < drawn.size(); ++i) {
        if (drawn_texts[i] != texts[i]) other[i] = drawn[i];
      }
    }
    // `same` always gives the first answer, and `other` another one.
    for (int step = 0; step < kCoinBits; ++step) {
      Coins middle(same.size());
      for (size_t i = 0; i < middle.size(); ++i) middle[i] = std::midpoint(same[i], other[i]);
      const std::vector<std::string> middle_texts = answers(middle);
      for (size_t i = 0; i < middle.size(); ++i) {
        (middle_texts[i] == texts[i] ? same : other)[i] = middle[i];
      }
    }
    for (size_t i = 0; i < same.size(); ++i) {
      num_edges_ += same[i] != other[i] ? 1 : 0;
      if (i % 2 == 1) same[i] = other[i];
    }
    Give(same, round);
    coins_ = same;
  }

  int num_edges() const { return num_edges_; }

  void Give(RoundCase* round) { Give(coins_, round); }

 private:
  using Coins = std::vector<uint64_t>;

  void Give(const Coins& coins, RoundCase* round) {
    for (size_t i = 0; i < coins.size(); ++i) {
      Task& task = round->task(static_cast<int32_t>(i));
      std::vector<InjectedCoin>& injected = injected_[i];
      injected.clear();
      const uint32_t base = task.round_base;
      for (uint32_t place = 0; place <= static_cast<uint32_t>(options_.max_draft); ++place) {
        const uint32_t position = task.first_position + place;
        injected.push_back({SampleCoin(position), coins[i]});
        injected.push_back({{position, base, place + 1, Purpose::kAccept}, coins[i]});
        injected.push_back({{position, base, place, Purpose::kResidual}, coins[i]});
        injected.push_back(
            {{task.first_position, base, task.first_node + place, Purpose::kDraft}, coins[i]});
      }
      task.coins = injected.data();
      task.num_coins = static_cast<int32_t>(injected.size());
    }
  }

  const RoundCase::Options options_;
  std::vector<std::vector<InjectedCoin>> injected_;
  Coins coins_;
  int num_edges_ = 0;
};

// Tasks that draw from the target rows in turn: at once, as children of a draft, as its best
// children among many, by block verification, and from a residual.
class DrawsInTurn {
 public:
  static constexpr int32_t kNumRows = static_cast<int32_t>(RoundCase::kNanRow);
  static constexpr int32_t kNumTasks = 5 * kNumRows;

  void Change(RoundCase* round) {
    for (int32_t i = 0; i < kNumTasks; ++i) {
      Chain& chain = chains_[static_cast<size_t>(i)];
      for (int32_t place = 0; place < 2; ++place) {
        chain.target_rows[place] = static_cast<uint32_t>((i + place) % kNumRows);
      }
      chain.draft_row = static_cast<uint32_t>((i + 4) % kNumRows);
      chain.token = i;
      Task& task = round->task(i);
      const int32_t kind = i / kNumRows;
      task.kind = kind == 1 || kind == 2 ? TaskKind::kSampleDraft : TaskKind::kVerify;
      task.method = kMethods[kind];
      task.sampling = kind == 2 ? DraftSampling::kTopK : DraftSampling::kWithReplacement;
      task.num_children = kind == 2 ? 4 : 2;
      if (kind == 2) task.target_filters = {.top_k = 1500};
      task.draft = {.num_nodes = task.kind == TaskKind::kVerify ? 1 : 0,
                    .tokens = &chain.token,
                    .kinds = &kSampled,
                    .target_rows = chain.target_rows,
                    .draft_rows = &chain.draft_row};
    }
  }

 private:
  struct Chain {
    TokenId token;
    uint32_t target_rows[2];
    uint32_t draft_row;
  };
  static constexpr VerifyMethod kMethods[] = {VerifyMethod::kExactMatch, VerifyMethod::kExactMatch,
                                              VerifyMethod::kExactMatch, VerifyMethod::kBlock,
                                              VerifyMethod::kToken};
  static constexpr DraftKind kSampled = DraftKind::kSampled;
  std::vector<Chain> chains_ = std::vector<Chain>(kNumTasks);
};

// The number of elements of the task's first row that min_p keeps. REQUIRES: the rows are float32
// on the host.
int32_t NumFrom(const TensorView& rows, const Task& task) {
  const float* const row =
      static_cast<const float*>(rows.data) + task.draft.target_rows[0] * rows.row_stride;
  const float max = *std::max_element(row, row + rows.vocab_size);
  return static_cast<int32_t>(std::count_if(row, row + rows.vocab_size, [&](float x) {
    return (x - max) * task.target_scale >= task.target_filters.min_p;
  }));
}

void CheckRecords(const std::vector<RoundCase::Options>& rounds,
                  const std::function<void(RoundCase&, const RoundCase::Options&)>& change) {
  const std::unique_ptr<Backend> device = DeviceOrReason();
  if (device == nullptr) return;
  const auto cpu = MakeBackend("cpu");
  REQUIRE(cpu.ok());
  DecisionCounts counts;
  int num_edges = 0;
  for (const RoundCase::Options& options : rounds) {
    for (Backend* const backend : {device.get(), cpu->get()}) {
      REQUIRE(backend->Prepare({options.vocab_size, options.batch, options.max_draft}).ok());
    }
    RoundCase changed(options);
    change(changed, options);
    EdgeCoins coins(**cpu, &changed, options);
    num_edges += coins.num_edges();
    const std::string difference =
        RecordDifference(*device, **cpu, options, &counts, [&](RoundCase& round) {
          change(round, options);
          coins.Give(&round);
        });
    CHECK_MESSAGE(difference.empty(), NameOf(options), ": ", difference);
  }
  CHECK(counts.drawn > 0);
  CHECK(num_edges > 0);
  MESSAGE("compared ", counts.drawn, " draws, ", num_edges, " tasks with coins at an edge");
}

TEST_SUITE("gpu") {
  TEST_CASE(
      "CUDA rounds that are recorded: weights that are powers of two, and elements that tie") {
    CheckRecords(EdgeRounds(), CutAnywhere);
  }

  // Nine tiles: the first thread of a warp has the numbers of eight, and the second has the last.
  TEST_CASE("CUDA rounds that are recorded: each of many tiles in turn has the mass") {
    DrawsInTurn draws;
    CheckRecords({{.vocab_size = 9 * kTileSize - 5,
                   .batch = DrawsInTurn::kNumTasks,
                   .max_draft = 1,
                   .dtype = DType::kBFloat16,
                   .seed = 1600,
                   .plain = true,
                   .by_tile = true}},
                 [&](RoundCase& round, const RoundCase::Options&) { draws.Change(&round); });
  }

  // In every other row 500 elements of the last tile have the mass, and floors of many heights
  // leave some or all of them. Lists of one warp then fill up to their end, or run over.
  TEST_CASE("CUDA rounds that are recorded: lists of one warp are full or nearly so") {
    // Without a device the case failed, because it had counted nothing.
    if (DeviceOrReason() == nullptr) return;
    DrawsInTurn draws;
    int num_nearly_full = 0;
    int num_over = 0;
    CheckRecords({{.vocab_size = kTileSize + 500,
                   .batch = DrawsInTurn::kNumTasks,
                   .max_draft = 1,
                   .dtype = DType::kFloat32,
                   .seed = 1700,
                   .plain = true,
                   .by_tile = true}},
                 [&](RoundCase& round, const RoundCase::Options& options) {
                   draws.Change(&round);
                   for (int32_t i = 0; i < options.batch; ++i) {
                     Task& task = round.task(i);
                     const int32_t kind = i / DrawsInTurn::kNumRows % 3;
                     for (Filters* const filters : {&task.target_filters, &task.draft_filters}) {
                       *filters = {.min_p = -8.0F - 0.5F * static_cast<float>(i % 29)};
                       if (kind == 1) filters->top_p = kTopPOff - kTopPOff / 64;
                       if (kind == 2) filters->top_k = 450;
                     }
                     const int32_t num_listed = NumFrom(round.All().target, task);
                     num_nearly_full += num_listed > 450 && num_listed <= kNarrowListMax ? 1 : 0;
                     num_over += num_listed > kNarrowListMax ? 1 : 0;
                   }
                 });
    CHECK(num_nearly_full > 0);
    CHECK(num_over > 0);
  }
}

}  // namespace
}  // namespace specd
