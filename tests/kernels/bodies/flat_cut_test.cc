// top_p on rows whose nucleus fits into no list: every team keeps what a sorted walk over integer
// weights keeps, to the last element, with the same masses and draws.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/bodies/sample.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr float kScale = 1.442695f;

// The answer by the definition in docs/ALGORITHMS.md, "Filters".
struct SortedWalk {
  std::vector<TokenId> kept;  // ascending
  uint64_t total = 0;
  std::vector<uint64_t> weights;  // of all ids; 0 where not kept

  SortedWalk(const std::vector<float>& row, float max, double mass, const Filters& filters) {
    std::vector<TokenId> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](TokenId a, TokenId b) { return row[a] > row[b]; });
    const auto weight = [&](TokenId id) {
      return IntegerWeight(Exp2((row[id] - max) * kScale), 0);
    };
    size_t num_before = order.size();
    if (filters.top_k > 0) num_before = std::min<size_t>(num_before, filters.top_k);
    auto all = static_cast<uint64_t>(std::floor(std::ldexp(mass, 40)));
    if (filters.top_k > 0 && !filters.joint) {
      all = 0;
      for (size_t i = 0; i < num_before; ++i) all += weight(order[i]);
    }
    // ceil(top_p * all / 2^53), and at least one element.
    const auto product = static_cast<unsigned __int128>(filters.top_p) * all;
    const auto need = static_cast<uint64_t>((product + kTopPOff - 1) / kTopPOff);
    uint64_t sum = 0;
    size_t num_kept = 0;
    while (num_kept < num_before && (num_kept == 0 || sum < need)) sum += weight(order[num_kept++]);
    weights.resize(row.size());
    for (size_t i = 0; i < num_kept; ++i) weights[order[i]] = weight(order[i]);
    for (const uint64_t one : weights) total += one;
    kept.assign(order.begin(), order.begin() + static_cast<int64_t>(num_kept));
    std::sort(kept.begin(), kept.end());
  }

  TokenId Draw(uint64_t coin) const {
    const auto product = static_cast<unsigned __int128>(coin) * total;
    const auto threshold = static_cast<uint64_t>(product >> 53);
    uint64_t prefix = 0;
    for (size_t id = 0; id < weights.size(); ++id) {
      prefix += weights[id];
      if (prefix > threshold) return static_cast<TokenId>(id);
    }
    return kNoToken;
  }
};

// What a team says about a row.
struct TeamAnswer {
  std::vector<TokenId> kept;
  uint64_t total = 0;
  std::vector<uint64_t> masses;  // of tiles; empty if the survivors are listed
  std::vector<TokenId> draws;
};

constexpr uint64_t kCoins[] = {0, (uint64_t{1} << kCoinBits) / 3, (uint64_t{1} << kCoinBits) - 1};

template <Team T>
TeamAnswer Ask(T& team, const RowView& view, const Filters& filters,
               const RowWorkspace& workspace) {
  const Distribution p = ReadDistribution(team, PlainRow(view), kScale, filters, workspace);
  TeamAnswer answer;
  if (team.leader()) {
    for (TokenId id = 0; id < view.vocab_size; ++id) {
      if (ElementOf(p.row, id) > -kInfinity) answer.kept.push_back(id);
    }
    answer.total = p.total;
    for (int32_t t = 0; p.num_listed == 0 && t < NumTiles(view.vocab_size); ++t) {
      answer.masses.push_back(p.tallies[t].amount);
    }
  }
  for (const uint64_t coin : kCoins) answer.draws.push_back(Sample(team, p, coin));
  return answer;
}

void CheckAnswer(const TeamAnswer& answer, const SortedWalk& walk) {
  const bool equal = answer.kept == walk.kept;  // a failure would print them
  REQUIRE(equal);
  REQUIRE(answer.total == walk.total);
  for (size_t t = 0; t < answer.masses.size(); ++t) {
    const auto begin = walk.weights.begin() + static_cast<int64_t>(t) * kTileSize;
    const auto rest = walk.weights.end() - begin;
    CAPTURE(t);
    REQUIRE(answer.masses[t] ==
            std::accumulate(begin, begin + std::min<int64_t>(rest, kTileSize), uint64_t{0}));
  }
  for (size_t i = 0; i < std::size(kCoins); ++i) REQUIRE(answer.draws[i] == walk.Draw(kCoins[i]));
}

// The backend for one instruction set, which writes the kept elements.
void CheckBackend(CpuTarget target, int32_t threads, const RowMatrix& rows, const Filters& filters,
                  const SortedWalk& walk) {
  const int32_t vocab_size = rows.view().vocab_size;
  CpuBackend backend(target);
  REQUIRE(backend.Prepare({.vocab_size = vocab_size, .max_batch = 1, .threads = threads}).ok());
  std::vector<float> out(static_cast<size_t>(vocab_size));
  RowTransform transform{.scale = kScale, .filters = filters, .out = out.data()};
  OutcomeStatus status = OutcomeStatus::kBadTargetRow;
  REQUIRE(backend.Transform({rows.view(), &transform, 1, &status}).ok());
  REQUIRE(status == OutcomeStatus::kOk);
  const auto mass = static_cast<float>(std::ldexp(static_cast<double>(walk.total), -40));
  transform.as_logits = true;
  std::vector<float> kept(static_cast<size_t>(vocab_size));
  transform.out = kept.data();
  REQUIRE(backend.Transform({rows.view(), &transform, 1, &status}).ok());
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocab_size; ++id) {
    if (kept[id] > -kInfinity) ids.push_back(id);
  }
  const bool equal = ids == walk.kept;  // a failure would print them
  REQUIRE(equal);
  const float max = *std::max_element(kept.begin(), kept.end());
  int64_t num_wrong = 0;
  for (const TokenId id : ids) num_wrong += out[id] != Exp2((kept[id] - max) * kScale) / mass;
  REQUIRE(num_wrong == 0);
}

enum class Shape {
  kNormal,
  kNarrow,
  kWide,
  kEqual,
  kTwoValues,
  kTies,
  kSpike,
  kDenormal,
  kAscending,
  kTrend,
  kHoles,
  kEnd,
};

std::vector<double> RowOf(Shape shape, int32_t vocab_size, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<double> row(static_cast<size_t>(vocab_size));
  for (int32_t i = 0; i < vocab_size; ++i) {
    double& x = row[static_cast<size_t>(i)];
    x = normal(random);
    if (shape == Shape::kNarrow) x *= 0.01;
    if (shape == Shape::kWide) x *= 30;
    if (shape == Shape::kEqual) x = i % 2 == 0 ? 0.0 : -0.0;
    if (shape == Shape::kTwoValues) x = x < 0 ? 1.0 : 1.25;
    if (shape == Shape::kTies) x = std::floor(4 * x) / 4;
    if (shape == Shape::kDenormal) x *= 1e-40;
    if (shape == Shape::kAscending) x = i * 1e-4;
    if (shape == Shape::kTrend) x -= 2.0 * i / vocab_size;
    if (shape == Shape::kHoles && random() % 3 == 0) x = -INFINITY;
  }
  // A weight of a third of all others together.
  if (shape == Shape::kSpike) row[row.size() / 2] = std::log(vocab_size * 0.5);
  if (shape == Shape::kHoles) row[0] = 0;
  return row;
}

struct FlatCase {
  RowMatrix rows;
  Filters filters;
  SortedWalk walk;
};

FlatCase CaseOf(Shape shape, int32_t vocab_size, DType dtype, const Filters& filters,
                std::mt19937_64& random) {
  RowMatrix rows({.dtype = dtype, .vocab_size = vocab_size, .num_rows = 1});
  rows.Set(0, RowOf(shape, vocab_size, random));
  ScalarTeam<CpuTarget::kBaseline> team;
  const OwnedWorkspace workspace(vocab_size);
  const Row row = PlainRow(rows.row(0));
  const Distribution all = ReadDistribution(team, row, kScale, Filters{}, workspace->target);
  REQUIRE_FALSE(all.bad());
  std::vector<float> values;
  for (TokenId id = 0; id < vocab_size; ++id) values.push_back(ElementOf(row, id));
  SortedWalk walk(values, all.max, all.mass, filters);
  return {std::move(rows), filters, std::move(walk)};
}

Filters TopP(double top_p, int32_t top_k = 0, bool joint = false) {
  return {.top_k = top_k, .top_p = static_cast<uint64_t>(top_p * 0x1p53), .joint = joint};
}

template <typename Visit>
void ForEachShape(const Visit& visit) {
  for (int32_t shape = 0; shape < static_cast<int32_t>(Shape::kEnd); ++shape) {
    CAPTURE(shape);
    visit(static_cast<Shape>(shape));
  }
}

// Rows around the least size that is sampled, with and without a full last tile or step.
constexpr int32_t kVocabSizes[] = {1,
                                   2047,
                                   kSampledTilesMin* kTileSize - 1,
                                   kSampledTilesMin* kTileSize,
                                   kSampledTilesMin* kTileSize + 1,
                                   40000};

// A row that its owner writes again between the passes over it; a pass begins with a Sync.
class ChangingTeam : public ScalarTeam<CpuTarget::kBaseline> {
 public:
  ChangingTeam(RowMatrix* rows, uint64_t seed) : rows_(rows), random_(seed) {}
  void Sync() {
    if (++num_syncs_ < 2 || random_() % 2 == 0) return;
    const auto shape = static_cast<Shape>(random_() % static_cast<uint64_t>(Shape::kEnd));
    rows_->Set(0, RowOf(shape, rows_->view().vocab_size, random_));
  }

 private:
  RowMatrix* rows_;
  std::mt19937_64 random_;
  int num_syncs_ = 0;
};

// A row that falls and rises between the passes over it.
class FallingTeam : public ScalarTeam<CpuTarget::kBaseline> {
 public:
  explicit FallingTeam(RowMatrix* rows) : rows_(rows) {}
  void Sync() {
    if (++num_syncs_ % 2 == 0) return;
    const int pass = (num_syncs_ + 1) / 2;
    std::vector<double> row(static_cast<size_t>(rows_->view().vocab_size),
                            pass == 1 || pass == 5 ? -1 : -1000);
    row[0] = 0;
    rows_->Set(0, row);
  }

 private:
  RowMatrix* rows_;
  int num_syncs_ = 0;
};

TEST_SUITE("unit") {
  // Bug: the search ended at an element whose weight had become 0, and divided by it.
  TEST_CASE("a row that falls while its nucleus is sought gives some answer") {
    RowMatrix rows({.vocab_size = 4096, .num_rows = 1});
    const OwnedWorkspace workspace(4096);
    FallingTeam team(&rows);
    const Distribution p =
        ReadDistribution(team, PlainRow(rows.row(0)), kScale, TopP(0.9), workspace->target);
    CHECK(p.filtered);
    const TokenId id = Sample(team, p, 0);
    CHECK(id >= kNoToken);
    CHECK(id < 4096);
  }

  TEST_CASE("flat rows: one that changes while its nucleus is sought gives some answer") {
    constexpr int32_t kVocabSize = kSampledTilesMin * kTileSize + 300;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      RowMatrix rows({.vocab_size = kVocabSize, .num_rows = 1});
      std::mt19937_64 random(seed);
      rows.Set(0, RowOf(Shape::kNormal, kVocabSize, random));
      const OwnedWorkspace workspace(kVocabSize);
      ChangingTeam team(&rows, seed);
      const Distribution p =
          ReadDistribution(team, PlainRow(rows.row(0)), kScale, TopP(0.95), workspace->target);
      if (p.bad()) continue;
      const TokenId id = Sample(team, p, kCoins[1]);
      REQUIRE(id >= kNoToken);
      REQUIRE(id < kVocabSize);
    }
  }

  TEST_CASE("flat rows: one thread keeps what a sorted walk keeps") {
    std::mt19937_64 random(1);
    ForEachShape([&](Shape shape) {
      for (const int32_t vocab_size : kVocabSizes) {
        const OwnedWorkspace workspace(vocab_size);
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
          for (const Filters& filters :
               {TopP(0.95), TopP(0.5), TopP(0.999), TopP(0.9, 9 * vocab_size / 10 + 1),
                TopP(0.9, 9 * vocab_size / 10 + 1, true)}) {
            CAPTURE(vocab_size);
            CAPTURE(filters.top_p);
            CAPTURE(filters.top_k);
            const FlatCase c = CaseOf(shape, vocab_size, dtype, filters, random);
            ScalarTeam<CpuTarget::kBaseline> team;
            CheckAnswer(Ask(team, c.rows.row(0), filters, workspace->target), c.walk);
          }
        }
      }
    });
  }

  TEST_CASE("flat rows: every instruction set and several threads keep the same") {
    std::mt19937_64 random(2);
    for (const CpuTarget target : {CpuTarget::kBaseline, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
      if (!CpuTargetIsSupported(target)) continue;
      CAPTURE(static_cast<int>(target));
      ForEachShape([&](Shape shape) {
        for (const int32_t vocab_size : {kSampledTilesMin * kTileSize, 65 * kTileSize + 40}) {
          for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
            const FlatCase c = CaseOf(shape, vocab_size, dtype, TopP(0.95), random);
            for (const int32_t threads : {1, 3}) {
              CheckBackend(target, threads, c.rows, c.filters, c.walk);
            }
          }
        }
      });
    }
  }

  TEST_CASE("flat rows: warps keep the same") {
    std::mt19937_64 random(3);
    ForEachShape([&](Shape shape) {
      constexpr int32_t kVocabSize = kSampledTilesMin * kTileSize + 300;
      const FlatCase c = CaseOf(shape, kVocabSize, DType::kFloat32, TopP(0.95), random);
      const OwnedWorkspace workspace(kVocabSize);
      TeamAnswer answer;
      const std::string error = RunEmulatedBlock({.num_threads = 96}, [&](EmulatedThread thread) {
        EmulatedTeam team(thread);
        const TeamAnswer mine = Ask(team, c.rows.row(0), c.filters, workspace->target);
        if (team.leader()) answer = mine;
      });
      REQUIRE(error == "");
      CheckAnswer(answer, c.walk);
    });
  }

  // If the estimate were far off, answers would be right and slow.
  TEST_CASE("flat rows: the estimate leaves fewer elements than a list holds") {
    std::mt19937_64 random(4);
    int32_t num_near = 0;
    for (int32_t i = 0; i < 40; ++i) {
      constexpr int32_t kVocabSize = 100000;
      const Shape shape = i % 2 == 0 ? Shape::kNormal : Shape::kTrend;
      const FlatCase c = CaseOf(shape, kVocabSize, DType::kFloat32, TopP(0.95), random);
      const OwnedWorkspace workspace(kVocabSize);
      ScalarTeam<CpuTarget::kBaseline> team;
      const Row row = PlainRow(c.rows.row(0));
      const Distribution p = ReadDistribution(team, row, kScale, Filters{}, workspace->target);
      const uint64_t all = IntegerMass(p.mass);
      const CutGoal goal{.need = MulDivUp(c.filters.top_p, all, kTopPOff),
                         .by_weight = true,
                         .first = p.max - 8.0f / kScale,
                         .all = all};
      REQUIRE(IsWide(team, p, goal.first));
      const CutEstimate estimate = EstimateCut(team, p, workspace->target, goal);
      REQUIRE(estimate.density > 0);
      int64_t num_above = 0;
      for (TokenId id = 0; id < kVocabSize; ++id) {
        if (ElementOf(row, id) >= estimate.value) ++num_above;
      }
      const int64_t distance = num_above - static_cast<int64_t>(c.walk.kept.size());
      if (std::abs(distance) < 1200) ++num_near;
    }
    CHECK(num_near >= 36);
  }
}

}  // namespace
}  // namespace specd
