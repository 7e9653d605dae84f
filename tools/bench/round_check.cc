#include "tools/bench/round_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "kernels/core/elements.h"
#include "kernels/core/philox.h"
#include "tools/bench/try.h"
#include "tools/oracle/oracle.h"
#include "tools/oracle/tree_oracle.h"

namespace specd::bench {
namespace {

using oracle::Probabilities;

// Elements that a check computes again.
constexpr int64_t kCheckedElementsMax = 8'000'000;
constexpr double kCoinSlack = 1e-6;
constexpr double kLogprobSlack = 1e-4;
// If a filter's border is closer than this, single and double precision may disagree.
constexpr double kBorderSlack = 1e-6;

oracle::Logits ReadElements(const RowView& row) {
  oracle::Logits elements;
  for (int32_t id = 0; id < row.vocab_size; ++id) elements.push_back(LoadElement(row, id));
  return elements;
}

// One sequence of a round: its input, the backend's answer, and the right answer, which is the walk
// of TreeOracle with the round's coins. On a chain `token` is `tree`, and `block` is `traversal`.
class SequenceCheck final : public oracle::TreeWorld {
 public:
  SequenceCheck(const RoundSet& set, int32_t round, int32_t sequence, const RoundAnswer& answer)
      : set_(set),
        case_(set.verify_case()),
        task_(set.task(round, sequence)),
        draft_(task_.draft),
        sequence_(sequence),
        outcome_(answer.outcomes[static_cast<size_t>(sequence)]),
        first_(static_cast<size_t>(sequence * set.shape().rows_of_sequence())),
        answer_(answer),
        coins_(task_.seed) {
    for (int32_t node = 0; node < draft_.num_nodes; ++node) {
      tree_.parents.push_back(ParentOf(draft_, node));
      tree_.kinds.push_back(KindOf(draft_, node));
    }
  }

  absl::Status Run() {
    const int32_t accepted = outcome_.num_accepted;
    if (outcome_.status != OutcomeStatus::kOk || accepted < 0 || accepted > draft_.num_nodes ||
        outcome_.num_tokens != accepted + 1) {
      return absl::InternalError(
          fmt::format("{}: status {}, {} accepted, {} tokens", Where(accepted),
                      static_cast<uint32_t>(outcome_.status), accepted, outcome_.num_tokens));
    }
    SPECD_TRY(CheckTokens());
    return case_.logprobs >= 0 ? CheckScores() : absl::OkStatus();
  }

 private:
  absl::Status CheckTokens() {
    const VerifyMethod method = case_.method == VerifyMethod::kToken   ? VerifyMethod::kTree
                                : case_.method == VerifyMethod::kBlock ? VerifyMethod::kTraversal
                                                                       : case_.method;
    const oracle::TreeResult found = oracle::TreeOracle(tree_, *this).Verify(method);
    if (is_doubtful_) return absl::OkStatus();
    const int32_t accepted = outcome_.num_accepted;
    const auto num_stand = static_cast<int32_t>(found.path.size());
    for (int32_t i = 0; i < std::max(accepted, num_stand); ++i) {
      const int32_t node = i < num_stand ? found.path[static_cast<size_t>(i)] : kRoot;
      if (AcceptedNode(i) != node) {
        return Wrong(
            i, fmt::format("belongs to node {}, not {} (-1: to none)", AcceptedNode(i), node));
      }
      if (Token(i) != draft_.tokens[node]) return Wrong(i, "is not the draft token it accepted");
    }
    if (found.token == Token(accepted)) return absl::OkStatus();
    return Wrong(accepted, "is not what the coin draws");
  }
  int32_t AcceptedNode(int32_t i) const {
    if (i >= outcome_.num_accepted) return kRoot;
    return draft_.parents == nullptr ? i : answer_.path[first_ + static_cast<size_t>(i)];
  }

  // ---- the world of the oracle

  Probabilities TargetAt(int place) override {
    auto [row, is_new] = targets_.try_emplace(place);
    if (!is_new) return row->second;
    row->second =
        case_.method == VerifyMethod::kGreedy
            ? oracle::OneHot(*oracle::Argmax(*oracle::AfterSteps(Row(place), StepsAt(place))),
                             VocabSize())
            : Target(place);
    return row->second;
  }
  Probabilities DraftAt(int place) override {
    auto [row, is_new] = drafts_.try_emplace(place);
    if (is_new) row->second = Drafter(place);
    return row->second;
  }
  void DrawChildren(int) override {}
  int TokenOf(int node) override { return draft_.tokens[node]; }
  bool Accepts(int node, double probability, double) override {
    const double u = Coin(PlaceOf(draft_, node), PlaceAfter(node), Purpose::kAccept);
    is_doubtful_ |= std::abs(u - probability) <= kCoinSlack && probability < 1;
    return u < probability;
  }
  int Sample(int place, const Probabilities& law) override {
    const double u = CoinToDouble(coins_(SampleCoin(PositionOf(place))));
    const int drawn = Drawn(place, law, u, kCoinSlack);
    if (drawn != kNoToken) return drawn;
    const int below = Drawn(place, Target(place, -kBorderSlack), u, kCoinSlack);
    return below != kNoToken ? below : Drawn(place, Target(place, kBorderSlack), u, kCoinSlack);
  }
  int Replace(int place, const Probabilities& law, double mass) override {
    return Drawn(place, law, Coin(place, place, Purpose::kResidual),
                 kCoinSlack / std::max(mass, kCoinSlack));
  }
  int Choose(int place, const std::vector<double>& ends) override {
    const double u = Coin(place, place, Purpose::kTree);
    size_t chosen = 0;
    while (chosen + 1 < ends.size() && u >= ends[chosen]) ++chosen;
    for (const double end : ends) is_doubtful_ |= end < 1 && std::abs(u - end) <= kCoinSlack;
    return static_cast<int>(chosen);
  }
  // The answer's token after this place, if the coin draws it.
  int Drawn(int32_t place, const Probabilities& law, double u, double slack) const {
    const int32_t i = DepthOf(draft_, place);
    const bool is_drawn = i < outcome_.num_tokens && oracle::IsDraw(law, Token(i), u, slack);
    return is_drawn ? Token(i) : kNoToken;
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
  // The drafter used the temperature of the case and nothing else. Without draft rows its tokens
  // are one-hot.
  Probabilities Drafter(int32_t place) const {
    const int32_t node = NextChild(draft_, place, kRoot);
    if (set_.draft().num_rows == 0 || node == kRoot) return Probabilities(VocabSize(), 0);
    return *oracle::Softmax(ReadElements(RowAt(set_.draft(), draft_.draft_rows[node])),
                            case_.temperature / case_.sharpness);
  }

  uint32_t PositionOf(int32_t place) const {
    return task_.first_position + static_cast<uint32_t>(DepthOf(draft_, place));
  }
  double Coin(int32_t place, int32_t node, Purpose purpose) const {
    return CoinToDouble(coins_({.position = PositionOf(place),
                                .round_base = task_.round_base,
                                .node = static_cast<uint32_t>(node),
                                .purpose = purpose}));
  }
  TokenId Token(int32_t place) const { return answer_.tokens[first_ + static_cast<size_t>(place)]; }

  size_t VocabSize() const { return static_cast<size_t>(set_.target().vocab_size); }

  std::string Where(int32_t place) const {
    return fmt::format("case {}, sequence {}, place {}", case_.name, sequence_, place);
  }
  absl::Status Wrong(int32_t place, std::string_view what) const {
    return absl::InternalError(fmt::format("{}: token {} {}", Where(place), Token(place), what));
  }

  const RoundSet& set_;
  const VerifyCase& case_;
  const Task& task_;
  const Draft& draft_;
  oracle::Tree tree_;
  int32_t sequence_;
  TaskOutcome outcome_;
  size_t first_;  // of the sequence's places in the answer
  const RoundAnswer& answer_;
  KeyedCoins coins_;
  std::map<int, Probabilities> targets_;  // each row is computed once
  std::map<int, Probabilities> drafts_;
  bool is_doubtful_ = false;  // a coin lies where single and double precision may disagree
};

// ---- rows

bool HasEarlierTwin(const Draft& draft, int32_t child) {
  for (int32_t node = 0; node < child; ++node) {
    if (draft.tokens[node] == draft.tokens[child] &&
        PlaceOf(draft, node) == PlaceOf(draft, child)) {
      return true;
    }
  }
  return false;
}

// The nodes whose places were read. `traversal` goes down to the children of a place in turn, as
// far as the one that the place's record names, the other methods only along the path. A second
// sibling with one id has nothing left: its place is not read, and `traversal` looks at the next.
NodeSet PlacesRead(const RoundSet& set, int32_t round, int32_t sequence,
                   const RoundAnswer& answer) {
  const auto first = static_cast<size_t>(sequence * set.shape().rows_of_sequence());
  const Draft& draft = set.task(round, sequence).draft;
  NodeSet nodes = 0;  // before the places that are read; the root's place always is
  for (int32_t i = 0; i < answer.outcomes[static_cast<size_t>(sequence)].num_accepted; ++i) {
    nodes |= NodeSet{1} << answer.path[first + static_cast<size_t>(i)];
  }
  for (int32_t place = 0;
       set.verify_case().method == VerifyMethod::kTraversal && place <= draft.num_nodes; ++place) {
    if (place > 0 && !Holds(nodes, NodeBefore(place))) continue;
    const PlaceDecision& record = answer.decisions[first + static_cast<size_t>(place)];
    if (record.draft == kNoToken) continue;
    for (int32_t child = NextChild(draft, place, kRoot); child != kRoot;
         child = NextChild(draft, place, child)) {
      if (!HasEarlierTwin(draft, child)) nodes |= NodeSet{1} << child;
      if (record.bound > 0 && draft.tokens[child] == record.draft) break;
    }
  }
  return nodes;
}

// ---- answers to the bit

bool IsSame(const TaskOutcome& a, const TaskOutcome& b) {
  return a.status == b.status && a.num_accepted == b.num_accepted && a.num_tokens == b.num_tokens &&
         a.empty_residuals == b.empty_residuals && a.invalid_drafts == b.invalid_drafts &&
         a.point_masses == b.point_masses && a.fault == b.fault;
}

std::string TextOf(const TaskOutcome& outcome) {
  return fmt::format("{} of {} tokens accepted, status {}, fault {}", outcome.num_accepted,
                     outcome.num_tokens, static_cast<int>(outcome.status),
                     static_cast<int>(outcome.fault));
}

bool IsSame(const TokenScore& a, const TokenScore& b) {
  return a.id == b.id && a.rank == b.rank &&
         std::bit_cast<uint32_t>(a.value) == std::bit_cast<uint32_t>(b.value);
}

}  // namespace

absl::StatusOr<int64_t> CheckRound(const RoundSet& set, int32_t round, const RoundAnswer& answer) {
  const int64_t elements_of_sequence = int64_t{set.shape().rows_of_sequence()} *
                                       set.target().vocab_size * (set.draft().num_rows > 0 ? 2 : 1);
  int64_t num_tokens = 0;
  int64_t num_elements = 0;
  for (int32_t s = 0; s < set.shape().batch && num_elements < kCheckedElementsMax; ++s) {
    SPECD_TRY(SequenceCheck(set, round, s, answer).Run());
    num_tokens += answer.outcomes[static_cast<size_t>(s)].num_tokens;
    num_elements += elements_of_sequence;
  }
  return num_tokens;
}

std::vector<MemorySpan> NeededRows(const RoundSet& set, int32_t round, const RoundAnswer& answer) {
  const VerifyCase& of = set.verify_case();
  const bool has_drafts = set.draft().num_rows > 0;
  std::vector<MemorySpan> spans;
  const auto add = [&](const TensorView& tensor, uint32_t row) {
    const auto size_bytes = static_cast<size_t>(tensor.vocab_size * SizeBytes(tensor.dtype));
    spans.push_back({RowAt(tensor, row).data, size_bytes});
  };
  const bool uses_q = of.method != VerifyMethod::kExactMatch &&
                      of.method != VerifyMethod::kTargetOnly && has_drafts;
  for (int32_t s = 0; s < set.shape().batch; ++s) {
    const Draft& draft = set.task(round, s).draft;
    if (draft.parents != nullptr) {
      const NodeSet nodes = PlacesRead(set, round, s, answer);
      for (int32_t place = 0; place <= draft.num_nodes; ++place) {
        if (place > 0 && !Holds(nodes, NodeBefore(place))) continue;
        add(set.target(), draft.target_rows[place]);
        const int32_t child = NextChild(draft, place, kRoot);
        if (uses_q && child != kRoot && IsDrawn(draft, child))
          add(set.draft(), draft.draft_rows[child]);
      }
      continue;
    }
    const int32_t num_accepted = answer.outcomes[static_cast<size_t>(s)].num_accepted;
    // A block's acceptance depends on all of its places, a token's only on those before it.
    const int32_t last_pair = of.method == VerifyMethod::kBlock
                                  ? draft.num_nodes - 1
                                  : std::min(num_accepted, draft.num_nodes - 1);
    for (int32_t i = 0; i <= std::max(num_accepted, uses_q ? last_pair : 0); ++i) {
      add(set.target(), draft.target_rows[i]);
      // With a side channel a draft row is read only if its residual is drawn from.
      const bool has_pair = i <= last_pair && (!of.side_channel || i == num_accepted);
      if (uses_q && has_pair) add(set.draft(), draft.draft_rows[i]);
    }
  }
  return spans;
}

int32_t NumRowsGiven(const RoundSet& set) {
  const Draft& draft = set.task(0, 0).draft;
  std::set<uint32_t> of_draft;
  if (set.draft().num_rows > 0)
    of_draft.insert(draft.draft_rows, draft.draft_rows + set.shape().draft);
  return set.shape().rows_of_sequence() + static_cast<int32_t>(of_draft.size());
}

std::string DifferenceOf(const RoundSet& set, int32_t round, const RoundAnswer& answer,
                         const RoundAnswer& expected) {
  const auto num_scores = static_cast<size_t>(set.scores_stride());
  for (int32_t s = 0; s < set.shape().batch; ++s) {
    const TaskOutcome& outcome = answer.outcomes[static_cast<size_t>(s)];
    const TaskOutcome& wanted = expected.outcomes[static_cast<size_t>(s)];
    if (!IsSame(outcome, wanted)) {
      return fmt::format("round {}, sequence {}: {} instead of {}", round, s, TextOf(outcome),
                         TextOf(wanted));
    }
    for (int32_t i = 0; i < wanted.num_tokens; ++i) {
      const auto at = static_cast<size_t>(s * set.shape().rows_of_sequence() + i);
      if (answer.tokens[at] != expected.tokens[at]) {
        return fmt::format("round {}, sequence {}, place {}: token {} instead of {}", round, s, i,
                           answer.tokens[at], expected.tokens[at]);
      }
      for (size_t k = at * num_scores; k < (at + 1) * num_scores; ++k) {
        const TokenScore& got = answer.scores[k];
        const TokenScore& score = expected.scores[k];
        if (IsSame(got, score)) continue;
        return fmt::format(
            "round {}, sequence {}, place {}, score {}: ({}, {}, {}) instead of ({}, {}, {})",
            round, s, i, k - at * num_scores, got.id, got.value, got.rank, score.id, score.value,
            score.rank);
      }
    }
  }
  return "";
}

}  // namespace specd::bench
