#include "tools/bench/round_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/core/philox.h"
#include "tools/bench/reference.h"

namespace specd::bench {
namespace {

constexpr double kCoinSlack = 1e-6;
constexpr double kLogprobSlack = 1e-4;

// One sequence of a round: its input, the backend's answer, and the right answer.
class SequenceCheck {
 public:
  SequenceCheck(const RoundSet& set, int32_t round, int32_t sequence, const RoundAnswer& answer)
      : set_(set),
        case_(set.verify_case()),
        task_(set.task(round, sequence)),
        sequence_(sequence),
        outcome_(answer.outcomes[static_cast<size_t>(sequence)]),
        first_(static_cast<size_t>(sequence * set.shape().rows_of_sequence())),
        answer_(answer),
        coins_(task_.seed) {}

  absl::Status Run() {
    const int32_t accepted = outcome_.num_accepted;
    if (outcome_.status != OutcomeStatus::kOk || accepted < 0 || accepted > task_.draft.num_nodes ||
        outcome_.num_tokens != accepted + 1) {
      return absl::InternalError(
          fmt::format("{}: status {}, {} accepted, {} tokens", Where(accepted),
                      static_cast<uint32_t>(outcome_.status), accepted, outcome_.num_tokens));
    }
    for (int32_t i = 0; i < accepted; ++i) {
      if (Token(i) != task_.draft.tokens[i]) return Wrong(i, "is not the draft token it accepted");
    }
    absl::Status status = CheckTokens();
    if (status.ok() && case_.logprobs >= 0) status = CheckScores();
    return status;
  }

 private:
  absl::Status CheckTokens() {
    switch (case_.method) {
      case VerifyMethod::kToken:
        return CheckTokenRule();
      case VerifyMethod::kBlock:
        return CheckBlockRule();
      default:
        break;
    }
    // The token at each place is known without the draft.
    for (int32_t i = 0; i < outcome_.num_tokens; ++i) {
      const ReferenceRow row = Target(i);
      if (case_.method == VerifyMethod::kGreedy) {
        if (Token(i) != row.argmax()) return Wrong(i, fmt::format("is not {}", row.argmax()));
      } else if (!IsSample(row, i)) {
        return Wrong(i, "is not what the coin draws");
      }
    }
    const int32_t last = outcome_.num_accepted;
    if (last < task_.draft.num_nodes && Token(last) == task_.draft.tokens[last]) {
      return Wrong(last, "equals the draft token, which should have been accepted");
    }
    return absl::OkStatus();
  }

  // token: accepted while u * q < p.
  absl::Status CheckTokenRule() {
    for (int32_t i = 0; i <= outcome_.num_accepted; ++i) {
      const ReferenceRow p = Target(i);
      if (i == task_.draft.num_nodes) return CheckBonus(p, i);
      const ReferenceRow q = Draft(i);
      const TokenId token = task_.draft.tokens[i];
      const double wanted = Coin(i, i + 1, Purpose::kAccept) * q.probability(token);
      const bool accepted = i < outcome_.num_accepted;
      const double border = std::abs(wanted - p.probability(token));
      if (accepted != (wanted < p.probability(token)) && border > kCoinSlack * wanted) {
        return Wrong(i, accepted ? "was accepted, which the coin forbids"
                                 : "replaces a token that the coin accepts");
      }
      if (!accepted) return CheckResidual(p, q, 1.0, i);
    }
    return absl::OkStatus();
  }

  // block: the largest i whose coin is below h_i (Sun et al. 2025).
  absl::Status CheckBlockRule() {
    const int32_t num_drafts = task_.draft.num_nodes;
    std::vector<ReferenceRow> p;
    std::vector<ReferenceRow> q;
    std::vector<double> prefix{1.0};  // P_i
    for (int32_t i = 0; i < num_drafts; ++i) {
      p.push_back(Target(i));
      q.push_back(Draft(i));
      const TokenId token = task_.draft.tokens[i];
      const double ratio = p.back().probability(token) / q.back().probability(token);
      prefix.push_back(std::min(1.0, prefix.back() * ratio));
    }
    int32_t stands = num_drafts;
    bool doubtful = false;
    for (; stands > 0; --stands) {
      const auto at = static_cast<size_t>(stands);
      double h = prefix[at];
      if (stands < num_drafts) {
        const double mass = ResidualMass(p[at], q[at], prefix[at]);
        const double below = mass + 1 - prefix[at];
        h = below > 0 ? mass / below : 1;
      }
      const double u = Coin(stands - 1, stands, Purpose::kAccept);
      doubtful |= std::abs(u - h) <= kCoinSlack;
      if (u < h) break;
    }
    const int32_t accepted = outcome_.num_accepted;
    if (stands != accepted) {
      if (doubtful) return absl::OkStatus();
      return Wrong(accepted, fmt::format("follows {} accepted tokens, not {}", accepted, stands));
    }
    if (accepted == num_drafts) return CheckBonus(Target(accepted), accepted);
    const auto at = static_cast<size_t>(accepted);
    return CheckResidual(p[at], q[at], prefix[at], accepted);
  }

  absl::Status CheckBonus(const ReferenceRow& row, int32_t place) const {
    return IsSample(row, place) ? absl::OkStatus() : Wrong(place, "is not what the coin draws");
  }

  absl::Status CheckResidual(const ReferenceRow& p, const ReferenceRow& q, double factor,
                             int32_t place) const {
    const std::vector<double> residual = Residual(p, q, factor);
    const double slack = kCoinSlack / std::max(ResidualMass(p, q, factor), kCoinSlack);
    if (IsDraw(residual, Token(place), Coin(place, place, Purpose::kResidual), slack)) {
      return absl::OkStatus();
    }
    return Wrong(place, "is not what the coin draws from the residual");
  }

  absl::Status CheckScores() const {
    for (int32_t i = 0; i < outcome_.num_tokens; ++i) {
      const std::vector<float> logits = ReadElements(RowAt(set_.target(), TargetRow(i)));
      std::vector<TokenId> best(logits.size());
      for (size_t id = 0; id < best.size(); ++id) best[id] = static_cast<TokenId>(id);
      const auto value = [&](TokenId id) { return logits[static_cast<size_t>(id)]; };
      const size_t num_best = std::min(best.size(), static_cast<size_t>(case_.logprobs));
      std::partial_sort(
          best.begin(), best.begin() + static_cast<std::ptrdiff_t>(num_best), best.end(),
          [&](TokenId a, TokenId b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
      const double top = value(best.front());
      double mass = 0;
      for (const float logit : logits) mass += std::exp(static_cast<double>(logit) - top);
      const TokenScore* scores = &answer_.scores[(first_ + static_cast<size_t>(i)) *
                                                 static_cast<size_t>(set_.scores_stride())];
      for (size_t j = 0; j <= num_best; ++j) {
        const TokenId id = j == 0 ? Token(i) : best[j - 1];
        const auto better = std::count_if(logits.begin(), logits.end(),
                                          [&](float logit) { return logit > value(id); });
        const double expected = value(id) - top - std::log(mass);
        if (scores[j].id != id || scores[j].rank != better + 1 ||
            !(std::abs(scores[j].value - expected) <= kLogprobSlack)) {
          return Wrong(
              i,
              fmt::format("has score {} = (id {}, {}, rank {}), not (id {}, {}, rank {})", j,
                          scores[j].id, scores[j].value, scores[j].rank, id, expected, better + 1));
        }
      }
    }
    return absl::OkStatus();
  }

  ReferenceRow Target(int32_t place) const {
    const PlaceEdits* edits = task_.places == nullptr ? nullptr : &task_.places[place];
    const uint32_t* mask = edits == nullptr || edits->mask_row < 0
                               ? nullptr
                               : set_.mask().words + edits->mask_row * set_.mask().row_stride;
    return ReferenceRow(RowAt(set_.target(), TargetRow(place)), case_, task_.edits, edits, mask);
  }
  // The drafter used the temperature of the case and nothing else.
  ReferenceRow Draft(int32_t place) const {
    VerifyCase drafter;
    drafter.temperature = case_.temperature;
    const RowView row = RowAt(set_.draft(), task_.draft.draft_rows[place]);
    return ReferenceRow(row, drafter, {}, nullptr, nullptr);
  }

  bool IsSample(const ReferenceRow& row, int32_t place) const {
    const CoinKey key = SampleCoin(task_.first_position + static_cast<uint32_t>(place));
    return IsDraw(row.probabilities(), Token(place), CoinToDouble(coins_(key)),
                  kCoinSlack + row.doubtful_mass());
  }
  static std::vector<double> Residual(const ReferenceRow& p, const ReferenceRow& q, double factor) {
    std::vector<double> residual = p.probabilities();
    for (size_t i = 0; i < residual.size(); ++i) {
      residual[i] = std::max(factor * residual[i] - q.probabilities()[i], 0.0);
    }
    return residual;
  }
  static double ResidualMass(const ReferenceRow& p, const ReferenceRow& q, double factor) {
    double mass = 0;
    for (const double weight : Residual(p, q, factor)) mass += weight;
    return mass;
  }
  double Coin(int32_t place, int32_t node, Purpose purpose) const {
    return CoinToDouble(coins_({.position = task_.first_position + static_cast<uint32_t>(place),
                                .round_base = task_.round_base,
                                .node = static_cast<uint32_t>(node),
                                .purpose = purpose}));
  }
  TokenId Token(int32_t place) const { return answer_.tokens[first_ + static_cast<size_t>(place)]; }
  uint32_t TargetRow(int32_t place) const { return task_.draft.target_rows[place]; }

  std::string Where(int32_t place) const {
    return fmt::format("case {}, sequence {}, place {}", case_.name, sequence_, place);
  }
  absl::Status Wrong(int32_t place, std::string_view what) const {
    return absl::InternalError(fmt::format("{}: token {} {}", Where(place), Token(place), what));
  }

  const RoundSet& set_;
  const VerifyCase& case_;
  const Task& task_;
  int32_t sequence_;
  TaskOutcome outcome_;
  size_t first_;  // of the sequence's places in the answer
  const RoundAnswer& answer_;
  KeyedCoins coins_;
};

}  // namespace

absl::StatusOr<int64_t> CheckRound(const RoundSet& set, int32_t round, const RoundAnswer& answer,
                                   int64_t max_rows) {
  int64_t num_tokens = 0;
  int64_t num_rows = 0;
  for (int32_t s = 0; s < set.shape().batch && num_rows < max_rows; ++s) {
    const absl::Status status = SequenceCheck(set, round, s, answer).Run();
    if (!status.ok()) return status;
    num_tokens += answer.outcomes[static_cast<size_t>(s)].num_tokens;
    const bool is_sampled = set.draft().num_rows > 0;
    num_rows += set.shape().rows_of_sequence() * (is_sampled ? 2 : 1);
  }
  return num_tokens;
}

}  // namespace specd::bench
