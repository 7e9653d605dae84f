#include "tools/replay/tree_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/core/philox.h"
#include "tools/replay/draft_tree.h"
#include "tools/replay/names.h"

namespace specd::replay {
namespace {

class TreeCheck {
 public:
  TreeCheck(const TraceTask& task, int32_t vocab_size)
      : task_(task),
        vocab_size_(vocab_size),
        tree_(task, vocab_size),
        coins_(task.seed, task.coins.data(), static_cast<int32_t>(task.coins.size())) {}

  ScalarFindings Run() {
    if (IsUndecided(task_.outcome.status)) return {};
    CheckConfirmed();
    if (task_.continues) return std::move(findings_);  // its positions were not final
    for (int32_t i = 0; i < static_cast<int32_t>(task_.decisions.size()); ++i) {
      CheckCoins(i);
      CheckWalk(i);
    }
    return std::move(findings_);
  }

 private:
  void Expect(bool is_equal, int32_t place, std::string text) {
    ++findings_.num_checked;
    if (!is_equal) findings_.differences.push_back(fmt::format("place {}: {}", place, text));
  }
  CoinKey KeyAt(int32_t place, int32_t node, Purpose purpose) const {
    const uint32_t depth = tree_.DepthOf(place);
    return {task_.first_position + depth, task_.round_base, static_cast<uint32_t>(node), purpose};
  }

  // The accepted ids are those of the path, and the final one is inside the vocabulary.
  void CheckConfirmed() {
    const TaskOutcome& outcome = task_.outcome;
    const bool has_final = outcome.status == OutcomeStatus::kOk;
    Expect(outcome.num_tokens == outcome.num_accepted + (has_final ? 1 : 0), 0,
           "the number of tokens is not that of the accepted ones and a final one");
    for (int32_t i = 0; i < outcome.num_tokens; ++i) {
      const int32_t place = tree_.PlaceAt(std::min(i, outcome.num_accepted));
      const TokenId token = task_.confirmed[i];
      if (task_.method == VerifyMethod::kGreedy && !task_.target_argmax.empty()) {
        const TokenId argmax = task_.target_argmax[place];
        Expect(token == argmax, place,
               fmt::format("{} was emitted, and the argmax is {}", token, argmax));
      }
      if (i >= outcome.num_accepted) {
        CheckFinal(place, token);
        continue;
      }
      const TokenId draft = tree_.TokenOf(tree_.path()[i]);
      Expect(token == draft, place,
             fmt::format("the draft token {} was accepted, and {} was emitted", draft, token));
    }
  }

  void CheckFinal(int32_t place, TokenId token) {
    Expect(token >= 0 && token < vocab_size_, place,
           fmt::format("the id {} is outside the vocabulary", token));
    const bool compares =
        task_.method == VerifyMethod::kGreedy || task_.method == VerifyMethod::kExactMatch ||
        task_.method == VerifyMethod::kTypical || task_.method == VerifyMethod::kRelaxed;
    if (!compares) return;
    for (const int32_t child : tree_.ChildrenOf(place)) {
      Expect(token != tree_.TokenOf(child), place,
             fmt::format("the draft token {} was rejected, and the same id replaced it", token));
    }
  }

  // `target_only` has one coin for a place; else the coin is that of the child that was judged
  // last.
  bool IsCoinOf(int32_t place, uint64_t coin) const {
    if (task_.method == VerifyMethod::kTargetOnly || task_.method == VerifyMethod::kThreshold) {
      return coins_(KeyAt(place, place, Purpose::kTree)) == coin;
    }
    const std::vector<int32_t> children = tree_.ChildrenOf(place);
    return std::any_of(children.begin(), children.end(), [&](int32_t child) {
      return coins_(KeyAt(place, PlaceAfter(child), Purpose::kAccept)) == coin;
    });
  }

  void CheckCoins(int32_t place) {
    const PlaceDecision& d = task_.decisions[place];
    if (d.accept_coin != kNoCoin) {
      Expect(IsCoinOf(place, d.accept_coin), place,
             fmt::format("the coin {} is that of none of its draft tokens", d.accept_coin));
    }
    if (d.draw_coin == kNoCoin) return;
    const CoinKey key = d.draw_purpose == Purpose::kResidual
                            ? KeyAt(place, place, Purpose::kResidual)
                            : SampleCoin(KeyAt(place, 0, Purpose::kSample).position);
    const uint64_t coin = coins_(key);
    Expect(d.draw_coin == coin, place,
           fmt::format("the {} coin is {}, and seed {} at position {} gives {}",
                       NameOf(key.purpose), d.draw_coin, task_.seed, key.position, coin));
    const CoinInterval& drawn = d.draw_interval;
    if (drawn.low < drawn.high) {
      Expect(coin >= drawn.low && coin < drawn.high, place,
             fmt::format("the coin {} is outside [{}, {}), whose coins draw {}", coin, drawn.low,
                         drawn.high, d.token));
    }
  }

  // The decisions against the recorded path.
  void CheckWalk(int32_t place) {
    const TaskOutcome& outcome = task_.outcome;
    if (outcome.status == OutcomeStatus::kBadToken) return;
    const PlaceDecision& d = task_.decisions[place];
    const int32_t depth = tree_.DepthOf(place);
    const bool is_on_path = depth <= outcome.num_accepted && tree_.PlaceAt(depth) == place;
    const bool is_last = is_on_path && depth == outcome.num_accepted;
    if (!d.judged) {
      Expect(!is_on_path || depth >= outcome.num_tokens, place,
             "the outcome has a token here, and no decision");
      return;
    }
    Expect(is_on_path, place, "the place was judged, and the accepted path does not come here");
    if (!is_on_path) return;
    Expect(d.stands == !is_last, place,
           fmt::format("a draft token {}, and the outcome accepts {}",
                       d.stands ? "is accepted" : "is not accepted", outcome.num_accepted));
    if (depth < outcome.num_tokens) {
      const TokenId confirmed = task_.confirmed[depth];
      Expect(d.token == confirmed, place,
             fmt::format("the decision emits {}, and the outcome {}", d.token, confirmed));
    }
    if (IsLossy(task_.method)) CheckLossy(place, d);
    if (task_.method != VerifyMethod::kTraversal) CheckBound(place, d);
  }

  // The numbers of a lossy rule: its bound, and what the draft token needed of it.
  void CheckLossy(int32_t place, const PlaceDecision& d) {
    if (d.bound < 0) return;
    const double p = d.p_mass > 0 ? double{d.p_weight} / d.p_mass : 0;
    const bool is_close = std::abs(p - d.bound) <= 1e-12;
    if (task_.method == VerifyMethod::kTypical) {
      Expect(d.bound <= task_.lossy.epsilon, place,
             fmt::format("the bound {} is above epsilon {}", d.bound, task_.lossy.epsilon));
      Expect(is_close || d.stands == (p > 0 && p >= d.bound), place,
             fmt::format("the draft token {} {}, and p = {} and the bound is {}", d.draft,
                         d.stands ? "is accepted" : "is rejected", p, d.bound));
    }
    if (task_.method == VerifyMethod::kRelaxed && d.stands) {
      Expect(
          is_close || (p > 0 && p >= d.bound), place,
          fmt::format("the draft token {} is accepted with p = {} below {}", d.draft, p, d.bound));
    }
    if (task_.method == VerifyMethod::kSynthetic && !task_.rates.empty()) {
      const size_t depth =
          std::min(static_cast<size_t>(tree_.DepthOf(place)), task_.rates.size() - 1);
      Expect(
          d.bound == double{task_.rates[depth]}, place,
          fmt::format("the rate is {}, and that of its depth is {}", d.bound, task_.rates[depth]));
    }
  }

  // The child that was judged last is accepted if u < t / d, or below the sum of p up to it.
  void CheckBound(int32_t place, const PlaceDecision& d) {
    if (d.bound < 0 || d.accept_coin == kNoCoin || d.bad_draft) return;
    const double u = CoinToDouble(d.accept_coin);
    // The decision compared products, and the bound is their quotient.
    if (std::abs(u - d.bound) <= 4 * std::numeric_limits<double>::epsilon() * d.bound) return;
    const bool is_single = task_.method == VerifyMethod::kThreshold && d.p_weight > 0 &&
                           double{d.p_weight} >= task_.lossy.single * d.p_mass;
    Expect(d.stands == (u < d.bound || is_single), place,
           fmt::format("the draft token {} {}, and u = {} and the bound is {}", d.draft,
                       d.stands ? "is accepted" : "is rejected", u, d.bound));
  }

  const TraceTask& task_;
  const int32_t vocab_size_;
  const DraftTree tree_;
  const KeyedCoins coins_;
  ScalarFindings findings_;
};

}  // namespace

ScalarFindings CheckTreeScalars(const TraceTask& task, int32_t vocab_size) {
  return TreeCheck(task, vocab_size).Run();
}

}  // namespace specd::replay
