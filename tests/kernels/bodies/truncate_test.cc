// Filters against the most obvious way: sort the row, walk down it, stop.
#include "kernels/bodies/truncate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/bodies/sample.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

struct Wanted {
  double min_p = 0;
  int32_t top_k = 0;
  double top_p = 1;
  bool joint = false;
};

Filters FiltersOf(const Wanted& wanted) {
  Filters filters;
  if (wanted.min_p > 0) filters.min_p = static_cast<float>(std::log2(wanted.min_p));
  filters.top_k = wanted.top_k;
  filters.top_p = static_cast<uint64_t>(wanted.top_p * 0x1p53);
  filters.joint = wanted.joint;
  return filters;
}

// How many elements of the order stay, and whether that was a close call that fp32 may see
// otherwise.
struct Prefix {
  int32_t size = 0;
  bool close = false;
};

Prefix MassPrefix(const std::vector<double>& p, int32_t scope, double share) {
  const double total = std::accumulate(p.begin(), p.begin() + scope, 0.0);
  double mass = 0;
  Prefix prefix;
  for (prefix.size = 0; prefix.size < scope;) {
    mass += p[prefix.size++];
    if (std::fabs(mass - share * total) < 2e-6 * total) prefix.close = true;
    if (mass >= share * total) break;
  }
  return prefix;
}

class SortedRow {
 public:
  SortedRow(const std::vector<double>& logits, double temperature) : ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
    std::stable_sort(ids_.begin(), ids_.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (const int32_t id : ids_) {
      if (std::isinf(logits[id])) break;
      p_.push_back(std::exp((logits[id] - logits[ids_[0]]) / temperature));
    }
  }

  Prefix Keep(const Wanted& wanted) const {
    Prefix prefix{static_cast<int32_t>(p_.size()), false};
    if (wanted.min_p > 0) {
      prefix.size = 0;
      for (const double p : p_) {
        if (std::fabs(p - wanted.min_p) < 1e-5 * wanted.min_p) prefix.close = true;
        if (p >= wanted.min_p) ++prefix.size;
      }
    }
    if (wanted.top_k > 0) prefix.size = std::min(prefix.size, wanted.top_k);
    if (wanted.top_p < 1) {
      const int32_t scope = wanted.joint ? static_cast<int32_t>(p_.size()) : prefix.size;
      const Prefix mass = MassPrefix(p_, scope, wanted.top_p);
      prefix = {std::min(prefix.size, mass.size), prefix.close || mass.close};
    }
    return prefix;
  }
  const std::vector<int32_t>& ids() const { return ids_; }
  const std::vector<double>& p() const { return p_; }

 private:
  std::vector<int32_t> ids_;
  std::vector<double> p_;
};

std::vector<TokenId> Survivors(const Distribution& p) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < p.row.view.vocab_size; ++id) {
    if (ElementOf(p.row, id) > -kInfinity) ids.push_back(id);
  }
  return ids;
}

// True if the comparison was decisive.
bool Check(const std::vector<double>& logits, const Wanted& wanted, double temperature) {
  const auto vocab_size = static_cast<int32_t>(logits.size());
  RowMatrix matrix({.vocab_size = vocab_size, .num_rows = 1});
  const SortedRow sorted(matrix.Set(0, logits), temperature);
  const Prefix expected = sorted.Keep(wanted);
  const OwnedWorkspace workspace(vocab_size);
  ScalarTeam<CpuTarget::kBaseline> team;
  const auto scale = static_cast<float>(1 / (temperature * std::log(2.0)));
  const Distribution p =
      ReadDistribution(team, PlainRow(matrix.row(0)), scale, FiltersOf(wanted), workspace->target);
  REQUIRE_FALSE(p.bad());
  std::vector<TokenId> ids = Survivors(p);
  CAPTURE(vocab_size);
  CAPTURE(wanted.min_p);
  CAPTURE(wanted.top_k);
  CAPTURE(wanted.top_p);
  CAPTURE(wanted.joint);
  CAPTURE(temperature);
  if (expected.close) {
    // The survivors are a prefix of the order, also where fp32 decided otherwise.
    REQUIRE(!ids.empty());
    std::vector<TokenId> prefix(sorted.ids().begin(), sorted.ids().begin() + ids.size());
    std::sort(prefix.begin(), prefix.end());
    REQUIRE(ids == prefix);
    return false;
  }
  std::vector<TokenId> prefix(sorted.ids().begin(), sorted.ids().begin() + expected.size);
  std::sort(prefix.begin(), prefix.end());
  REQUIRE(ids.size() == prefix.size());
  REQUIRE(ids == prefix);
  const double mass = std::accumulate(sorted.p().begin(), sorted.p().begin() + expected.size, 0.0);
  REQUIRE(p.mass == doctest::Approx(mass).epsilon(3e-6));

  // The draw at a few coins, by the same walk in ascending ids.
  for (int step = 0; step < 8; ++step) {
    const double u = (step + 0.5) / 8;
    const TokenId id = Sample(team, p, static_cast<uint64_t>(u * 0x1p53));
    double before = 0;
    double own = 0;
    for (int32_t i = 0; i < expected.size; ++i) {
      if (sorted.ids()[i] < id) before += sorted.p()[i];
      if (sorted.ids()[i] == id) own = sorted.p()[i];
    }
    REQUIRE(own > 0);
    REQUIRE(u * mass >= before - 3e-6 * mass);
    REQUIRE(u * mass <= before + own + 3e-6 * mass);
  }
  return true;
}

std::vector<double> SomeRow(std::mt19937_64& random, int32_t vocab_size) {
  std::normal_distribution<double> normal;
  std::vector<double> logits(vocab_size);
  const auto shape = random() % 5;
  for (int32_t i = 0; i < vocab_size; ++i) {
    switch (shape) {
      case 0:
        logits[i] = 3 * normal(random);
        break;
      case 1:
        logits[i] = normal(random);
        break;
      case 2:
        logits[i] = std::floor(2 * normal(random));
        break;  // ties
      case 3:
        logits[i] = i * 1e-3;
        break;
      default:
        logits[i] = 0;
        break;  // nothing but ties, -0 among them
    }
    if (shape == 4 && random() % 2 == 0) logits[i] = -0.0;
    if (random() % 16 == 0) logits[i] = -INFINITY;
  }
  logits[random() % vocab_size] = 1;
  return logits;
}

Wanted SomeFilters(std::mt19937_64& random, int32_t vocab_size) {
  Wanted wanted;
  const double unit = static_cast<double>(random() % 1000 + 1) / 1001;
  if (random() % 2 == 0) wanted.min_p = unit * unit * unit;
  if (random() % 2 == 0) wanted.top_k = 1 + static_cast<int32_t>(random() % vocab_size);
  if (random() % 3 == 0) wanted.top_k = 1 + static_cast<int32_t>(random() % 50);
  if (random() % 2 == 0) wanted.top_p = 1 - unit * unit;
  wanted.joint = random() % 2 == 0;
  return wanted;
}

// A row that its owner writes again between the passes over it; a pass begins with a Sync.
class ChangingTeam : public ScalarTeam<CpuTarget::kBaseline> {
 public:
  explicit ChangingTeam(RowMatrix* rows) : rows_(rows) {}
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
    ChangingTeam team(&rows);
    Filters filters;
    filters.top_p = kTopPOff / 10 * 9;
    const Distribution p =
        ReadDistribution(team, PlainRow(rows.row(0)), 1.442695f, filters, workspace->target);
    CHECK(p.filtered);
    const TokenId id = Sample(team, p, 0);
    CHECK(id >= kNoToken);
    CHECK(id < 4096);
  }

  TEST_CASE("filters keep what a sorted walk keeps, in sequence and jointly") {
    std::mt19937_64 random(20);
    int decisive = 0;
    int all = 0;
    for (const int32_t vocab_size : {1, 2, 3, 7, 40, 300, 2048, 2049, 5000, 20000}) {
      for (int repeat = 0; repeat < (vocab_size > 4000 ? 25 : 60); ++repeat) {
        const std::vector<double> logits = SomeRow(random, vocab_size);
        const double temperature = std::vector<double>{0.3, 1, 2}[random() % 3];
        decisive += Check(logits, SomeFilters(random, vocab_size), temperature);
        ++all;
      }
    }
    MESSAGE(decisive << " of " << all << " rows were decisive");
    CHECK(decisive > all * 7 / 10);
  }

  TEST_CASE("an element at the upper end of the search's bracket is counted once") {
    // The search for top_p first tries 2^-8 and then 2^-16. The nucleus ends among the elements of
    // 2^-12, and ten elements are 2^-8 exactly.
    std::vector<double> logits(2 * kTileSize, -100.0);
    logits[0] = 0.0;
    for (size_t i = 0; i < 10; ++i) logits[1 + i] = -8.0;
    for (size_t i = 0; i < 100; ++i) logits[100 + i] = -12.0;
    const double mass = 1 + 10 * 0x1p-8 + 100 * 0x1p-12;
    const double top_p = (1 + 10 * 0x1p-8 + 49.5 * 0x1p-12) / mass;
    CHECK(Check(logits, {.top_p = top_p}, 1 / std::log(2.0)));
  }
}

}  // namespace
}  // namespace specd
