// KernelRow and CheckRowLaw compare the law of one kernel row with the law of the oracle for tests,
// with any edits and filters.
//
// The kernel's law is read from its weights, and then checked in its draws. Ids ascend with the
// coin. An id must therefore come out just inside both ends of the interval that the law gives it.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/kernels/bodies/packed_steps.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/rows.h"
#include "tools/oracle/oracle.h"

namespace specd {

// A coin for each purpose.
struct FixedCoins {
  uint64_t accept = 0;
  uint64_t residual = 0;
  uint64_t sample = 0;
  std::vector<CoinKey>* asked = nullptr;  // records every requested key

  uint64_t operator()(const CoinKey& key) const {
    if (asked != nullptr) asked->push_back(key);
    if (key.purpose == Purpose::kAccept) return accept;
    return key.purpose == Purpose::kResidual ? residual : sample;
  }
};

inline constexpr uint64_t kCoinEnd = uint64_t{1} << kCoinBits;

struct RowCase {
  std::vector<double> row;
  oracle::Steps steps = {};
  double temperature = 1;
  oracle::Truncation truncation = {};
  DType dtype = DType::kFloat32;
  RowKind kind = RowKind::kLogits;
  bool renormalise = false;
  double scale = 1;
  double cap = 0;
};

// A row in memory with a task that draws from it.
class KernelRow {
 public:
  explicit KernelRow(const RowCase& row_case)
      : rows_({.dtype = row_case.dtype,
               .vocab_size = static_cast<int32_t>(row_case.row.size()),
               .num_rows = 1,
               .rules = {.kind = row_case.kind,
                         .renormalise = row_case.renormalise,
                         .scale = static_cast<float>(row_case.scale),
                         .cap = static_cast<float>(row_case.cap)}}),
        packed_({row_case.steps}, static_cast<int32_t>(row_case.row.size())),
        chain_(VerifyMethod::kExactMatch, {}, DraftKind::kOneHot),
        workspace_(static_cast<int32_t>(row_case.row.size())) {
    stored_ = rows_.Set(0, row_case.row);
    packed_.Apply(&chain_.task);
    chain_.task.target_scale = ScaleOf(row_case.temperature);
    chain_.task.target_filters = FiltersOf(row_case.truncation);
  }

  // Draws through the whole path of a task.
  ChainResult Run(VerifyMethod method, uint64_t coin = 0) {
    chain_.task.method = method;
    return RunScalar(chain_.task, rows_.view(), TensorView{}, FixedCoins{.sample = coin},
                     packed_.mask());
  }
  TokenId Greedy() { return Run(VerifyMethod::kGreedy).tokens[0]; }

  const std::vector<double>& stored() const { return stored_; }
  Task& task() { return chain_.task; }

  // Reads the row once; Draw then takes any number of coins.
  void Read() {
    ChainRun run(chain_.task, rows_.view(), TensorView{}, packed_.mask());
    const FixedCoins none;
    p_ = ChainRows(team_, run.batch, chain_.task, *workspace_, none).ReadTarget(0);
    REQUIRE_FALSE(p_.bad());
  }
  TokenId Draw(uint64_t coin) { return Sample(team_, p_, coin); }
  TokenId DrawWithout(TokenId removed, uint64_t coin) { return Sample(team_, p_, coin, removed); }
  double Probability(TokenId id) const { return WeightOf(p_, id) / p_.mass; }

 private:
  RowMatrix rows_;
  PackedSteps packed_;
  ChainCase chain_;
  OwnedWorkspace workspace_;
  ScalarTeam<CpuTarget::kBaseline> team_;
  Distribution p_;
  std::vector<double> stored_;
};

// The oracle's law of the row as it is stored.
inline oracle::Probabilities ExpectedLaw(const RowCase& row_case,
                                         const std::vector<double>& stored) {
  const oracle::Logits logits = row_case.kind == RowKind::kLogits
                                    ? oracle::ScaledAndCapped(stored, row_case.scale, row_case.cap)
                                    : oracle::LogOf(stored);
  return *oracle::Distribution(logits, row_case.steps, row_case.temperature, row_case.truncation);
}

// Checks that the kernel's law is the oracle's: impossible ids have exactly 0, the others lie
// within the bounds of docs/ALGORITHMS.md. Returns the law.
inline std::vector<double> CheckRowLaw(const RowCase& row_case) {
  constexpr double kEdge = 2e-6;  // a margin at an interval of coins
  KernelRow kernel(row_case);
  kernel.Read();
  const oracle::Probabilities expected = ExpectedLaw(row_case, kernel.stored());
  const double top = *std::max_element(expected.begin(), expected.end());
  std::vector<double> law;
  double end = 0;
  const size_t stride = expected.size() / 300 + 1;  // large rows draw only some ids
  for (size_t id = 0; id < expected.size(); ++id) {
    law.push_back(kernel.Probability(static_cast<TokenId>(id)));
    const double p = expected[id];
    if (p == 0 && law[id] == 0) continue;
    const double relative = 1e-6 * (1 + std::log(top / p));
    if (!(std::fabs(law[id] - p) <= p * relative + 1e-37)) {  // weights end at 2^-126
      FAIL("id " << id << " has probability " << law[id] << " and should have " << p);
    }
    const double begin = end;
    end += p;
    if (p <= 2 * kEdge || (p < 0.01 && id % stride != 0)) continue;
    for (const double coin : {begin + kEdge, end - kEdge}) {
      const TokenId drawn = kernel.Draw(static_cast<uint64_t>(coin * 0x1p53));
      if (drawn != static_cast<TokenId>(id)) {
        FAIL("coin " << coin << " draws " << drawn << " and should draw " << id);
      }
    }
  }
  for (const uint64_t coin : {uint64_t{0}, kCoinEnd - 1}) REQUIRE(law[kernel.Draw(coin)] > 0);
  return law;
}

// The ids that the law can draw.
inline std::vector<int> SupportOf(const std::vector<double>& law) {
  std::vector<int> support;
  for (size_t id = 0; id < law.size(); ++id) {
    if (law[id] > 0) support.push_back(static_cast<int>(id));
  }
  return support;
}

}  // namespace specd
