// Drafts that specd draws itself, and rows given back whole, against the oracle.
#include "kernels/bodies/draft.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "kernels/bodies/transform.h"
#include "tests/kernels/bodies/packed_steps.h"
#include "tests/kernels/bodies/row_law.h"
#include "tests/kernels/bodies/run_chain.h"

namespace specd {
namespace {

constexpr double kInf = INFINITY;
using TestTeam = ScalarTeam<CpuTarget::kBaseline>;

// The children of one row for coins given by node.
std::vector<DraftSample> Children(const RowCase& c, DraftSampling sampling,
                                  const std::vector<uint64_t>& coins, uint32_t first_node = 3) {
  RowMatrix rows({.vocab_size = static_cast<int32_t>(c.row.size()), .num_rows = 1});
  rows.Set(0, c.row);
  ChainCase chain(VerifyMethod::kExactMatch, {}, DraftKind::kSampled);
  const PackedSteps packed({c.steps}, static_cast<int32_t>(c.row.size()));
  packed.Apply(&chain.task);
  chain.task.kind = TaskKind::kSampleDraft;
  chain.task.target_scale = ScaleOf(c.temperature);
  chain.task.target_filters = FiltersOf(c.truncation);
  chain.task.first_position = 11;
  chain.task.round_base = 9;
  chain.task.first_node = first_node;
  chain.task.num_children = static_cast<int32_t>(coins.size());
  chain.task.sampling = sampling;
  const auto coin_of = [&](const CoinKey& key) {
    REQUIRE(key.position == 11);
    REQUIRE(key.round_base == 9);
    REQUIRE(key.purpose == Purpose::kDraft);
    return coins.at(key.node - first_node);
  };
  ChainRun run(chain.task, rows.view(), TensorView{}, packed.mask());
  TestTeam team;
  const TaskOutcome outcome = run.By(team, coin_of);
  REQUIRE(outcome.status == OutcomeStatus::kOk);
  return {run.samples.begin(), run.samples.begin() + outcome.num_tokens};
}

std::vector<TokenId> IdsOf(const std::vector<DraftSample>& samples) {
  std::vector<TokenId> ids;
  for (const DraftSample& sample : samples) ids.push_back(sample.id);
  return ids;
}

// Where the oracle's inverse CDF puts a coin; -1 where rounding may decide.
int DrawOf(const oracle::Probabilities& p, double u) {
  double end = 0;
  for (size_t id = 0; id < p.size(); ++id) {
    const double begin = end;
    end += p[id];
    if (u < end) return u - begin < 1e-5 || end - u < 1e-5 ? -1 : int(id);
  }
  return -1;
}

TEST_SUITE("unit") {
  TEST_CASE("with replacement: each child has its own coin, equal ids are counted, q is reported") {
    std::mt19937_64 random(51);
    for (int repeat = 0; repeat < 200; ++repeat) {
      RowCase c{.row = RandomLogits(random, 9), .temperature = 0.8};
      for (double& x : c.row) x = RoundTo(DType::kFloat32, x);
      if (repeat % 2 == 0) c.truncation = {.top_k = 5, .top_p = 0.9};
      const auto q = *oracle::Distribution(c.row, c.steps, c.temperature, c.truncation);
      std::vector<uint64_t> coins;
      std::vector<int> drawn;
      for (int j = 0; j < 6; ++j) {
        coins.push_back(random() >> 11);
        drawn.push_back(DrawOf(q, CoinToDouble(coins.back())));
      }
      if (std::count(drawn.begin(), drawn.end(), -1) > 0) continue;
      uint32_t total = 0;
      size_t next = 0;
      for (const DraftSample& sample : Children(c, DraftSampling::kWithReplacement, coins)) {
        REQUIRE(sample.count == std::count(drawn.begin(), drawn.end(), sample.id));
        REQUIRE(sample.weight / sample.mass == doctest::Approx(q[sample.id]).epsilon(1e-6));
        // In the order in which they were first drawn.
        const size_t place =
            size_t(std::find(drawn.begin(), drawn.end(), sample.id) - drawn.begin());
        REQUIRE(place >= next);
        next = place;
        total += sample.count;
      }
      REQUIRE(total == 6);
    }
  }

  TEST_CASE("without replacement: each child is drawn from what the others left") {
    std::mt19937_64 random(52);
    for (int repeat = 0; repeat < 200; ++repeat) {
      RowCase c{.row = RandomLogits(random, 6), .temperature = 1.1};
      for (double& x : c.row) x = RoundTo(DType::kFloat32, x);
      if (repeat % 3 == 0) c.truncation = {.top_k = 3};
      c.steps.mask = {true, true, true, true, true, repeat % 5 == 0};
      oracle::Probabilities left =
          *oracle::Distribution(c.row, c.steps, c.temperature, c.truncation);
      std::vector<uint64_t> coins;
      std::vector<TokenId> expected;
      std::vector<double> shares;  // of what each child was drawn from
      bool clear = true;
      for (int j = 0; j < 6; ++j) {
        coins.push_back(random() >> 11);
        double sum = 0;
        for (const double x : left) sum += x;
        if (sum == 0) continue;
        for (double& x : left) x /= sum;
        const int id = DrawOf(left, CoinToDouble(coins.back()));
        clear = clear && id >= 0;
        if (!clear) break;
        expected.push_back(id);
        shares.push_back(std::exchange(left[size_t(id)], 0.0));
      }
      if (!clear) continue;
      const std::vector<DraftSample> samples =
          Children(c, DraftSampling::kWithoutReplacement, coins);
      REQUIRE(IdsOf(samples) == expected);
      for (size_t i = 0; i < samples.size(); ++i) {
        REQUIRE(samples[i].count == 1);
        REQUIRE(samples[i].weight / samples[i].mass == doctest::Approx(shares[i]).epsilon(1e-6));
      }
    }
  }

  // Bug: with all survivors drawn, min_tokens yielded to an end that had never been allowed.
  TEST_CASE("without replacement: no child is an end that min_tokens forbids") {
    RowMatrix rows({.vocab_size = 5, .num_rows = 1});
    rows.Set(0, {3, 2, 1, 0, 4});
    ChainCase chain(VerifyMethod::kExactMatch, {}, DraftKind::kSampled);
    const TokenEdit end{4, kEditEnd, 0, 0};
    PlaceEdits place;
    place.below_min_tokens = true;
    chain.task.kind = TaskKind::kSampleDraft;
    chain.task.edits.edits = &end;
    chain.task.edits.num_edits = 1;
    chain.task.places = &place;
    chain.task.target_filters.top_k = 2;
    chain.task.sampling = DraftSampling::kWithoutReplacement;
    chain.task.num_children = 4;
    ChainRun run(chain.task, rows.view(), TensorView{});
    TestTeam team;
    const TaskOutcome outcome = run.By(team, [](const CoinKey&) { return uint64_t{0}; });
    REQUIRE(outcome.num_tokens == 2);
    CHECK(run.samples[0].id == 0);
    CHECK(run.samples[1].id == 1);
  }

  TEST_CASE("without replacement: an id outside the vocabulary is no child") {
    // A row that changes while it is read leaves places of the list unwritten (verify.h).
    for (const TokenId stray : {-7, kNoToken, 4, 1 << 30}) {
      CAPTURE(stray);
      RowMatrix rows({.vocab_size = 4, .num_rows = 1});
      rows.Set(0, {0, 0, 0, 0});
      const OwnedWorkspace workspace(4);
      TestTeam team;
      Filters filters;
      filters.top_k = 2;
      const Distribution p =
          ReadDistribution(team, PlainRow(rows.row(0)), 1.0f, filters, workspace->target);
      REQUIRE(p.num_listed > 0);
      for (int32_t i = 0; i < p.num_listed; ++i) p.list.ids[i] = stray;
      REQUIRE(Sample(team, p, 0) == stray);
      std::vector<DraftSample> samples(3);
      CHECK(SampleChildren(
                team, p, DraftSampling::kWithoutReplacement, 3, [](int32_t) { return uint64_t{0}; },
                nullptr, workspace->target, samples.data()) == 0);
    }
  }

  TEST_CASE("top_k children: the best ids in order, no coin asked for") {
    const RowCase c{.row = {1, 5, -kInf, 5, 3}};
    CHECK(IdsOf(Children(c, DraftSampling::kTopK, {0, 0, 0})) == std::vector<TokenId>{1, 3, 4});
    CHECK(IdsOf(Children(c, DraftSampling::kTopK, {0, 0, 0, 0, 0, 0})) ==
          std::vector<TokenId>{1, 3, 4, 0});
  }

  TEST_CASE("mixed: the best ids in order, and a draw from the rest with the last coin") {
    std::mt19937_64 random(54);
    int num_checked = 0;
    for (int repeat = 0; repeat < 200; ++repeat) {
      RowCase c{.row = RandomLogits(random, 7), .temperature = 0.9};
      for (double& x : c.row) x = RoundTo(DType::kFloat32, x);
      if (repeat % 3 == 0) c.truncation = {.top_k = 4};
      const size_t num_children = 1 + random() % 4;
      oracle::Probabilities rest =
          *oracle::Distribution(c.row, c.steps, c.temperature, c.truncation);
      const oracle::Probabilities q = rest;
      std::vector<TokenId> expected;
      double mass = 1;
      while (expected.size() + 1 < num_children) {
        const auto best = std::max_element(rest.begin(), rest.end());
        expected.push_back(TokenId(best - rest.begin()));
        mass -= *best;
        *best = 0;
      }
      for (double& x : rest) x /= mass;
      std::vector<uint64_t> coins(num_children, 0);  // only the last one counts
      coins.back() = random() >> 11;
      const bool has_rest = c.truncation.top_k == 0 || int(num_children) <= c.truncation.top_k;
      if (has_rest) {
        expected.push_back(DrawOf(rest, CoinToDouble(coins.back())));
        if (expected.back() < 0) continue;
      }
      const std::vector<DraftSample> samples = Children(c, DraftSampling::kMixed, coins);
      REQUIRE(IdsOf(samples) == expected);
      for (size_t i = 0; i < samples.size(); ++i) {
        const bool is_last = i + 1 == num_children;
        REQUIRE(samples[i].kind == (is_last ? DraftKind::kSampledRest : DraftKind::kOneHot));
        const oracle::Probabilities& from = is_last ? rest : q;
        REQUIRE(samples[i].weight / samples[i].mass ==
                doctest::Approx(from[size_t(samples[i].id)]).epsilon(1e-6));
      }
      ++num_checked;
    }
    CHECK(num_checked > 150);
  }

  TEST_CASE("mixed children if fewer ids than children are left") {
    const RowCase c{.row = {1, -kInf, 4}};
    const auto two = Children(c, DraftSampling::kMixed, {0, 0, 0, 0});
    CHECK(IdsOf(two) == std::vector<TokenId>{2, 0});
    for (const DraftSample& sample : two) CHECK(sample.kind == DraftKind::kOneHot);
    const RowCase point{.row = {1, kInf, 4}};
    CHECK(IdsOf(Children(point, DraftSampling::kMixed, {0, 0})) == std::vector<TokenId>{1});
  }

  TEST_CASE("children of a point mass") {
    const RowCase c{.row = {1, kInf, 2}};
    const auto samples = Children(c, DraftSampling::kWithReplacement, {5, 6, 7});
    REQUIRE(IdsOf(samples) == std::vector<TokenId>{1});
    CHECK(samples[0].count == 3);
    CHECK(samples[0].weight / samples[0].mass == 1);
    CHECK(IdsOf(Children(c, DraftSampling::kWithoutReplacement, {5, 6})) ==
          std::vector<TokenId>{1});
  }

  TEST_CASE("FlashInfer: transformed rows are the oracle's: softmax, renormalised, masked") {
    std::mt19937_64 random(53);
    for (const int32_t vocab_size : {1, 111, 5000}) {
      for (int repeat = 0; repeat < 6; ++repeat) {
        const oracle::Truncation truncation =
            repeat % 2 == 0 ? oracle::Truncation{} : oracle::Truncation{.top_k = 60, .top_p = 0.9};
        RowMatrix rows(
            {.dtype = static_cast<DType>(repeat % 3), .vocab_size = vocab_size, .num_rows = 1});
        std::vector<double> row = RandomLogits(random, vocab_size);
        if (vocab_size > 3) row[3] = -kInf;
        const std::vector<double> stored = rows.Set(0, row);
        std::vector<float> out(size_t(vocab_size) + 1, -7);
        OwnedWorkspace workspace(vocab_size);
        TestTeam team;
        const RowTransform transform{.row = 0,
                                     .scale = ScaleOf(0.7),
                                     .filters = FiltersOf(truncation),
                                     .as_logits = repeat >= 3,
                                     .out = out.data()};
        REQUIRE(TransformRow(team, rows.row(0), transform, workspace->target) ==
                OutcomeStatus::kOk);
        const auto p = *oracle::Distribution(stored, {}, 0.7, truncation);
        for (int32_t id = 0; id < vocab_size; ++id) {
          if (transform.as_logits) {
            REQUIRE(out[id] == (p[id] > 0 ? float(stored[id]) : -kInfinity));
          } else {
            REQUIRE(std::fabs(out[id] - p[id]) <= 3e-5 * p[id] + 1e-37);
          }
        }
        REQUIRE(out[vocab_size] == -7);
      }
    }
  }

  TEST_CASE("a bad row is transformed into NaN, a point mass into one 1") {
    RowMatrix rows({.vocab_size = 3, .num_rows = 1});
    OwnedWorkspace workspace(3);
    TestTeam team;
    std::vector<float> out(3);
    const RowTransform transform{
        .row = 0, .scale = 1, .filters = {}, .as_logits = false, .out = out.data()};
    rows.Set(0, {1, NAN, 2});
    CHECK(TransformRow(team, rows.row(0), transform, workspace->target) ==
          OutcomeStatus::kBadTargetRow);
    for (const float x : out) CHECK(IsNan(x));
    rows.Set(0, {1, kInf, 2});
    CHECK(TransformRow(team, rows.row(0), transform, workspace->target) == OutcomeStatus::kOk);
    CHECK(out == std::vector<float>{0, 1, 0});
  }
}

}  // namespace
}  // namespace specd
