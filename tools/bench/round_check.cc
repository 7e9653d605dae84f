#include "tools/bench/round_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "kernels/core/elements.h"
#include "kernels/core/philox.h"
#include "tools/oracle/oracle.h"
#include "tools/oracle/tree_oracle.h"

namespace specd::bench {
namespace {

using oracle::Probabilities;

constexpr double kCoinSlack = 1e-6;
constexpr double kLogprobSlack = 1e-4;
// If a filter's border is closer than this, single and double precision may disagree.
constexpr double kBorderSlack = 1e-6;

oracle::Logits ReadElements(const RowView& row) {
  oracle::Logits elements;
  for (int32_t id = 0; id < row.vocab_size; ++id) elements.push_back(LoadElement(row, id));
  return elements;
}

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
    if (task_.draft.parents != nullptr) return TreeCheck(*this).Run();
    for (int32_t i = 0; i < accepted; ++i) {
      if (Token(i) != task_.draft.tokens[i]) return Wrong(i, "is not the draft token it accepted");
    }
    absl::Status status = CheckTokens();
    if (status.ok() && case_.logprobs >= 0) status = CheckScores();
    return status;
  }

 private:
  // The walk of the oracle with the round's coins. Its rows are computed once each.
  class TreeCheck final : public oracle::TreeWorld {
   public:
    explicit TreeCheck(const SequenceCheck& check) : check_(check), draft_(check.task_.draft) {
      for (int32_t node = 0; node < draft_.num_nodes; ++node) {
        tree_.parents.push_back(draft_.parents[node]);
        tree_.kinds.push_back(KindOf(draft_, node));
      }
    }

    absl::Status Run() {
      const oracle::TreeResult found = oracle::TreeOracle(tree_, *this).Verify(check_.case_.method);
      if (is_doubtful_) return absl::OkStatus();
      const int32_t accepted = check_.outcome_.num_accepted;
      for (int32_t i = 0; i < std::max<int32_t>(accepted, std::ssize(found.path)); ++i) {
        const int32_t node =
            i < std::ssize(found.path) ? found.path[static_cast<size_t>(i)] : kRoot;
        const int32_t is = i < accepted ? check_.answer_.path[check_.first_ + size_t(i)] : kRoot;
        if (is != node || (node != kRoot && check_.Token(i) != draft_.tokens[node])) {
          return check_.Wrong(i, fmt::format("follows node {}, not {}", is, node));
        }
      }
      if (found.token == check_.Token(accepted)) return absl::OkStatus();
      return check_.Wrong(accepted, "is not what the coin draws");
    }

   private:
    Probabilities TargetAt(int place) override {
      auto [row, is_new] = targets_.try_emplace(place);
      if (is_new) row->second = check_.Target(place);
      return row->second;
    }
    Probabilities DraftAt(int place) override {
      auto [row, is_new] = drafts_.try_emplace(place);
      if (is_new) row->second = check_.Drafter(NextChild(draft_, place, kRoot));
      return row->second;
    }
    void DrawChildren(int) override {}
    int TokenOf(int node) override { return draft_.tokens[node]; }
    bool Accepts(int node, double probability, double) override {
      const double u = Coin(PlaceOf(draft_, node), PlaceAfter(node), Purpose::kAccept);
      is_doubtful_ |= std::abs(u - probability) <= kCoinSlack;
      return u < probability;
    }
    int Sample(int place, const Probabilities& law) override {
      const int32_t depth = DepthOf(draft_, place);
      return Drawn(depth, law,
                   CoinToDouble(check_.coins_(
                       SampleCoin(check_.task_.first_position + static_cast<uint32_t>(depth)))),
                   1);
    }
    int Replace(int place, const Probabilities& law, double mass) override {
      return Drawn(DepthOf(draft_, place), law, Coin(place, place, Purpose::kResidual), mass);
    }
    int Choose(int place, const std::vector<double>& ends) override {
      const double u = Coin(place, place, Purpose::kTree);
      int chosen = 0;
      for (const double end : ends) {
        is_doubtful_ |= end < 1 && std::abs(u - end) <= kCoinSlack;
        chosen += u >= end ? 1 : 0;
      }
      return std::min<int>(chosen, static_cast<int>(std::ssize(ends)) - 1);
    }

    double Coin(int32_t place, int32_t node, Purpose purpose) const {
      return check_.Coin(DepthOf(draft_, place), node, purpose);
    }
    // The answer's token at this depth, if the coin draws it.
    int Drawn(int32_t depth, const Probabilities& law, double u, double mass) const {
      const bool has_token = depth < check_.outcome_.num_tokens;
      const double slack = kCoinSlack / std::max(mass, kCoinSlack);
      return has_token && oracle::IsDraw(law, check_.Token(depth), u, slack) ? check_.Token(depth)
                                                                             : kNoToken;
    }

    const SequenceCheck& check_;
    const Draft& draft_;
    oracle::Tree tree_;
    std::map<int, Probabilities> targets_;
    std::map<int, Probabilities> drafts_;
    bool is_doubtful_ = false;
  };

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
      if (case_.method == VerifyMethod::kGreedy) {
        const TokenId best = *oracle::Argmax(*oracle::AfterSteps(Row(i), StepsAt(i)));
        if (Token(i) != best) return Wrong(i, fmt::format("is not {}", best));
      } else if (!IsSample(i)) {
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
      if (i == task_.draft.num_nodes) return CheckBonus(i);
      const Probabilities p = Target(i);
      const Probabilities q = Drafter(i);
      const double wanted = Coin(i, i + 1, Purpose::kAccept);
      const double accept = oracle::AcceptProbability(p, q, task_.draft.tokens[i]);
      const bool accepted = i < outcome_.num_accepted;
      if (accepted != (wanted < accept) && std::abs(wanted - accept) > kCoinSlack) {
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
    std::vector<Probabilities> p;
    std::vector<Probabilities> q;
    for (int32_t i = 0; i < num_drafts; ++i) {
      p.push_back(Target(i));
      q.push_back(Drafter(i));
    }
    const oracle::Block block = oracle::BlockOf(
        p, q, std::vector<int>(task_.draft.tokens, task_.draft.tokens + num_drafts));
    int32_t stands = num_drafts;
    bool doubtful = false;
    for (; stands > 0; --stands) {
      const double h = block.accept[static_cast<size_t>(stands)];
      const double u = Coin(stands - 1, stands, Purpose::kAccept);
      doubtful |= std::abs(u - h) <= kCoinSlack;
      if (u < h) break;
    }
    const int32_t accepted = outcome_.num_accepted;
    if (stands != accepted) {
      if (doubtful) return absl::OkStatus();
      return Wrong(accepted, fmt::format("follows {} accepted tokens, not {}", accepted, stands));
    }
    if (accepted == num_drafts) return CheckBonus(accepted);
    const auto at = static_cast<size_t>(accepted);
    return CheckResidual(p[at], q[at], block.path[at], accepted);
  }

  absl::Status CheckBonus(int32_t place) const {
    return IsSample(place) ? absl::OkStatus() : Wrong(place, "is not what the coin draws");
  }

  absl::Status CheckResidual(const Probabilities& p, const Probabilities& q, double factor,
                             int32_t place) const {
    const std::optional<Probabilities> residual = oracle::Residual(p, q, factor);
    double mass = 0;
    for (size_t i = 0; i < p.size(); ++i) mass += std::max(factor * p[i] - q[i], 0.0);
    const double slack = kCoinSlack / std::max(mass, kCoinSlack);
    if (residual &&
        oracle::IsDraw(*residual, Token(place), Coin(place, place, Purpose::kResidual), slack)) {
      return absl::OkStatus();
    }
    return Wrong(place, "is not what the coin draws from the residual");
  }

  absl::Status CheckScores() const {
    for (int32_t i = 0; i < outcome_.num_tokens; ++i) {
      const oracle::Logits logits = Row(i);
      const oracle::Logits logprobs = oracle::Logprobs(*oracle::Softmax(logits, 1));
      std::vector<int> ids = oracle::TopIds(logits, case_.logprobs);
      ids.insert(ids.begin(), Token(i));
      const TokenScore* scores = &answer_.scores[(first_ + static_cast<size_t>(i)) *
                                                 static_cast<size_t>(set_.scores_stride())];
      for (size_t j = 0; j < ids.size(); ++j) {
        const int rank = oracle::RankOf(logits, ids[j]);
        const double expected = logprobs[static_cast<size_t>(ids[j])];
        if (scores[j].id != ids[j] || scores[j].rank != rank ||
            !(std::abs(scores[j].value - expected) <= kLogprobSlack)) {
          return Wrong(
              i,
              fmt::format("has score {} = (id {}, {}, rank {}), not (id {}, {}, rank {})", j,
                          scores[j].id, scores[j].value, scores[j].rank, ids[j], expected, rank));
        }
      }
    }
    return absl::OkStatus();
  }

  oracle::Logits Row(int32_t place) const {
    return ReadElements(RowAt(set_.target(), task_.draft.target_rows[place]));
  }
  // The mask and the penalties of a place. An override takes the place of the sequence's edit.
  oracle::Steps StepsAt(int32_t place) const {
    const Penalties& penalties = task_.edits.penalties;
    oracle::Steps steps{.repetition = penalties.repetition,
                        .frequency = penalties.frequency,
                        .presence = penalties.presence};
    std::map<TokenId, TokenEdit> edits;
    const auto add = [&edits](const TokenEdit* first, int32_t count) {
      for (int32_t i = 0; i < count; ++i) edits[first[i].id] = first[i];
    };
    add(task_.edits.edits, task_.edits.num_edits);
    if (task_.places != nullptr) {
      const PlaceEdits& at = task_.places[place];
      add(at.overrides, at.num_overrides);
      const uint32_t* const mask = set_.mask().words + at.mask_row * set_.mask().row_stride;
      for (int32_t id = 0; at.mask_row >= 0 && id < set_.target().vocab_size; ++id) {
        steps.mask.push_back((mask[id / 32] >> (id % 32) & 1) != 0);
      }
    }
    for (const auto& [id, edit] : edits) {
      if ((edit.flags & kEditSeen) != 0) steps.prompt.push_back(id);
      steps.output.insert(steps.output.end(), edit.count, id);
    }
    return steps;
  }
  // `slack` moves the borders of the filters.
  Probabilities Target(int32_t place, double slack = 0) const {
    return *oracle::Distribution(Row(place), StepsAt(place), case_.temperature,
                                 {.min_p = case_.min_p * (1 + slack),
                                  .top_k = case_.top_k,
                                  .top_p = case_.top_p < 1 ? case_.top_p + slack : 1});
  }
  // The drafter used the temperature of the case and nothing else.
  Probabilities Drafter(int32_t place) const {
    return *oracle::Softmax(ReadElements(RowAt(set_.draft(), task_.draft.draft_rows[place])),
                            case_.temperature / case_.sharpness);
  }

  bool IsSample(int32_t place) const {
    const double u =
        CoinToDouble(coins_(SampleCoin(task_.first_position + static_cast<uint32_t>(place))));
    const auto is_draw = [&](double slack) {
      return oracle::IsDraw(Target(place, slack), Token(place), u, kCoinSlack);
    };
    return is_draw(0) || is_draw(kBorderSlack) || is_draw(-kBorderSlack);
  }
  double Coin(int32_t place, int32_t node, Purpose purpose) const {
    return CoinToDouble(coins_({.position = task_.first_position + static_cast<uint32_t>(place),
                                .round_base = task_.round_base,
                                .node = static_cast<uint32_t>(node),
                                .purpose = purpose}));
  }
  TokenId Token(int32_t place) const { return answer_.tokens[first_ + static_cast<size_t>(place)]; }

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
