#include "tools/replay/scalar_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "kernels/core/philox.h"
#include "tools/replay/draft_tree.h"
#include "tools/replay/names.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/tree_check.h"

namespace specd::replay {
namespace {

class ScalarCheck {
 public:
  ScalarCheck(const TraceTask& task, int32_t vocab_size)
      : task_(task),
        vocab_size_(vocab_size),
        coins_(task.seed, task.coins.data(), static_cast<int32_t>(task.coins.size())),
        num_drawn_(static_cast<int32_t>(NumDrawn(task, vocab_size))) {}

  ScalarFindings Run() {
    CheckConfirmed();
    if (task_.continues) return std::move(findings_);  // its positions were not final
    for (int32_t i = 0; i < static_cast<int32_t>(task_.decisions.size()); ++i) {
      CheckCoins(i);
      CheckPlace(i);
    }
    if (!task_.decisions.empty()) {
      if (task_.method == VerifyMethod::kBlock) CheckBlock();
      CheckWalk();
    }
    return std::move(findings_);
  }

 private:
  void Expect(bool is_equal, int32_t place, std::string text) {
    ++findings_.num_checked;
    if (!is_equal) findings_.differences.push_back(fmt::format("place {}: {}", place, text));
  }
  bool IsDrawn(int32_t place) const { return place < num_drawn_; }
  TokenId DraftAt(int32_t place) const { return task_.tokens[place]; }
  const PlaceDecision& At(int32_t place) const { return task_.decisions[place]; }

  void ExpectCoin(int32_t place, uint64_t recorded, const CoinKey& key) {
    const uint64_t coin = coins_(key);
    Expect(recorded == coin, place,
           fmt::format("the {} coin is {}, and seed {} at position {} gives {}",
                       NameOf(key.purpose), recorded, task_.seed, key.position, coin));
  }

  void CheckCoins(int32_t i) {
    const PlaceDecision& d = At(i);
    const uint32_t position = task_.first_position + static_cast<uint32_t>(i);
    const uint32_t node = i;
    if (d.accept_coin != kNoCoin) {
      ExpectCoin(i, d.accept_coin, {position, task_.round_base, node + 1, Purpose::kAccept});
    }
    if (d.draw_coin == kNoCoin) return;
    if (d.draw_purpose == Purpose::kResidual) {
      ExpectCoin(i, d.draw_coin, {position, task_.round_base, node, Purpose::kResidual});
    } else {
      ExpectCoin(i, d.draw_coin, SampleCoin(position));
    }
    const CoinInterval& drawn = d.draw_interval;
    if (drawn.low < drawn.high) {
      Expect(d.draw_coin >= drawn.low && d.draw_coin < drawn.high, i,
             fmt::format("the coin {} is outside [{}, {}), whose coins draw {}", d.draw_coin,
                         drawn.low, drawn.high, d.token));
    }
  }

  // u * (w_q * Z_p) < w_p * Z_q in double (CONTRACT §9.5).
  static bool Accepts(const PlaceDecision& d) {
    const double u = CoinToDouble(d.accept_coin);
    return u * (double{d.q_weight} * d.p_mass) < double{d.p_weight} * d.q_mass;
  }

  void CheckPlace(int32_t i) {
    const PlaceDecision& d = At(i);
    if (!d.judged || d.bad_target || d.bad_draft) return;
    if (d.stands) {
      Expect(IsDrawn(i) && d.token == DraftAt(i), i, "a token is accepted that is not the draft's");
    }
    switch (task_.method) {
      case VerifyMethod::kGreedy:
        if (!task_.target_argmax.empty()) {
          const TokenId argmax = task_.target_argmax[i];
          Expect(d.token == argmax, i,
                 fmt::format("the token is {}, and the argmax {}", d.token, argmax));
        }
        [[fallthrough]];
      case VerifyMethod::kExactMatch:
        if (IsDrawn(i)) {
          Expect(d.stands == (d.token == DraftAt(i)), i,
                 fmt::format("the draft token {} {}, and the row's token is {}", DraftAt(i),
                             d.stands ? "is accepted" : "is rejected", d.token));
        }
        break;
      case VerifyMethod::kToken:
        if (!IsDrawn(i)) break;
        Expect(d.accept_coin != kNoCoin, i, "the draft token was judged without an ACCEPT coin");
        Expect(d.p_mass > 0, i, "the draft token was judged without a mass of p");
        if (d.accept_coin != kNoCoin && d.p_mass > 0) {
          Expect(d.stands == Accepts(d), i,
                 fmt::format("the draft token {}, and u * q {} p",
                             d.stands ? "is accepted" : "is rejected", Accepts(d) ? "<" : ">="));
        }
        break;
      default:
        break;
    }
  }

  // P after a place, from P before it (docs/ALGORITHMS.md, "Chains").
  static double NextPrefix(double prefix, const PlaceDecision& d) {
    const double p = double{d.p_weight} * d.q_mass;
    const double q = double{d.q_weight} * d.p_mass;
    if (q == 0) return p == 0 || prefix == 0 ? 0.0 : 1.0;
    return std::fmin(1.0, prefix * (p / q));
  }

  // The places whose p and q the walk has read: judged as part of the block.
  int32_t NumBlockPlaces() const {
    int32_t count = 0;
    while (count < num_drawn_ && At(count).q_mass > 0 && At(count).p_mass > 0) ++count;
    return count;
  }

  void CheckBlock() {
    const int32_t places = NumBlockPlaces();
    double prefix = 1;
    for (int32_t i = 0; i < places; ++i) {
      const PlaceDecision& d = At(i);
      Expect(d.prefix == prefix, i, fmt::format("P is {}, and p and q give {}", d.prefix, prefix));
      prefix = NextPrefix(prefix, d);
    }
    CheckBounds(places, prefix);
  }

  void CheckBounds(int32_t places, double last_prefix) {
    int32_t accepted = 0;
    bool is_certain = true;
    for (int32_t i = places; i > 0; --i) {
      const PlaceDecision& d = At(i - 1);
      if (d.accept_coin == kNoCoin) break;
      const double u = CoinToDouble(d.accept_coin);
      const double bound = BoundAt(i, places);
      // The outcome alone says whether the walk ended here.
      if (bound < 0 && i != task_.outcome.num_accepted) continue;
      if (bound < 0) {
        accepted = i;
        break;
      }
      if (i == places) {
        Expect(bound == last_prefix, i - 1,
               fmt::format("h is {}, and p and q give {}", bound, last_prefix));
      } else if (IsOneHot(i)) {
        const double expected = OneHotBound(At(i));
        Expect(bound == expected, i - 1, fmt::format("h is {}, and p gives {}", bound, expected));
      }
      // The decision compared products, and the bound is their quotient.
      if (std::abs(u - bound) <= 4 * std::numeric_limits<double>::epsilon() * bound) {
        is_certain = false;
        break;
      }
      if (u >= bound) continue;
      accepted = i;
      break;
    }
    const bool has_bounds = places > 0 && At(places - 1).bound >= 0;
    if (!is_certain || !has_bounds || places < num_drawn_) return;
    Expect(accepted == task_.outcome.num_accepted || task_.outcome.status != OutcomeStatus::kOk, 0,
           fmt::format("{} draft tokens were accepted, and the coins and bounds accept {}",
                       task_.outcome.num_accepted, accepted));
  }

  // h of the draft up to place i. If a record lacks it (RecordsBounds), the residual that the final
  // token was drawn from has it. Below 0: not known.
  double BoundAt(int32_t i, int32_t places) const {
    const double recorded = At(i - 1).bound;
    const bool ends_here = i == task_.outcome.num_accepted && i < places;
    if (recorded >= 0 || !ends_here || At(i).residual_mass <= 0) return recorded;
    return Bound(At(i).residual_mass, At(i).prefix);
  }

  bool IsOneHot(int32_t i) const {
    const size_t index = i;
    return index >= task_.kinds.size() || task_.kinds[index] == DraftKind::kOneHot;
  }

  // S / (S + 1 - P) of a place with a one-hot draft: S = P (1 - p(x)).
  static double OneHotBound(const PlaceDecision& d) {
    return Bound(d.prefix * ((d.p_mass - double{d.p_weight}) / d.p_mass), d.prefix);
  }
  static double Bound(double mass, double prefix) {
    const double rest = mass + (1.0 - prefix);
    return rest <= 0.0 ? 1.0 : mass / rest;
  }

  // The outcome against the decisions: accepted up to num_accepted, then the final token.
  void CheckWalk() {
    const TaskOutcome& outcome = task_.outcome;
    if (IsUndecided(outcome.status) || outcome.status == OutcomeStatus::kBadToken) {
      return;
    }
    for (int32_t i = 0; i < static_cast<int32_t>(task_.decisions.size()); ++i) {
      const PlaceDecision& d = At(i);
      if (!d.judged) {
        Expect(i >= outcome.num_tokens, i, "the outcome has a token here, and no decision");
        continue;
      }
      Expect(d.stands == (i < outcome.num_accepted), i,
             fmt::format("the draft token {}, and the outcome accepts {}",
                         d.stands ? "is accepted" : "is not accepted", outcome.num_accepted));
      if (i < outcome.num_tokens) {
        const TokenId confirmed = task_.confirmed[i];
        Expect(d.token == confirmed, i,
               fmt::format("the decision emits {}, and the outcome {}", d.token, confirmed));
      }
      const bool is_final = i == outcome.num_accepted && outcome.status == OutcomeStatus::kOk;
      // SGLang's generator has no coins.
      if (is_final && task_.method != VerifyMethod::kGreedy && task_.rng == Rng::kPhilox) {
        Expect(d.draw_coin != kNoCoin, i, "the final token was drawn without a coin");
      }
    }
  }

  // The outcome against the draft, for any backend.
  void CheckConfirmed() {
    const TaskOutcome& outcome = task_.outcome;
    if (IsUndecided(outcome.status)) return;
    Expect(outcome.num_accepted <= num_drawn_, 0,
           fmt::format("{} draft tokens were accepted of {}", outcome.num_accepted, num_drawn_));
    const bool has_final = outcome.status == OutcomeStatus::kOk;
    Expect(outcome.num_tokens == outcome.num_accepted + (has_final ? 1 : 0), 0,
           "the number of tokens is not that of the accepted ones and a final one");
    for (int32_t i = 0; i < outcome.num_tokens; ++i) {
      const TokenId token = task_.confirmed[i];
      CheckArgmax(i, token);
      if (i < outcome.num_accepted && i < num_drawn_) {
        Expect(
            token == DraftAt(i), i,
            fmt::format("the draft token {} was accepted, and {} was emitted", DraftAt(i), token));
      } else {
        Expect(token >= 0 && token < vocab_size_, i,
               fmt::format("the id {} is outside the vocabulary", token));
      }
    }
    CheckFinal();
  }

  // `greedy` emits the argmax at each place.
  void CheckArgmax(int32_t i, TokenId token) {
    if (task_.method != VerifyMethod::kGreedy || task_.target_argmax.empty()) return;
    const TokenId argmax = task_.target_argmax[i];
    Expect(token == argmax, i, fmt::format("{} was emitted, and the argmax is {}", token, argmax));
  }

  // Where a draft token was rejected, `greedy` and `exact_match` emit another one.
  void CheckFinal() {
    const TaskOutcome& outcome = task_.outcome;
    const bool compares =
        task_.method == VerifyMethod::kGreedy || task_.method == VerifyMethod::kExactMatch;
    if (!compares || outcome.status != OutcomeStatus::kOk || !IsDrawn(outcome.num_accepted)) return;
    if (outcome.num_tokens != outcome.num_accepted + 1) return;
    const TokenId token = task_.confirmed.back();
    Expect(token != DraftAt(outcome.num_accepted), outcome.num_accepted,
           fmt::format("the draft token {} was rejected, and the same id replaced it", token));
  }

  const TraceTask& task_;
  const int32_t vocab_size_;
  const KeyedCoins coins_;
  const int32_t num_drawn_;
  ScalarFindings findings_;
};

}  // namespace

ScalarFindings CheckScalars(const TraceTask& task, int32_t vocab_size) {
  if (DraftTree::IsTree(task)) return CheckTreeScalars(task, vocab_size);
  return ScalarCheck(task, vocab_size).Run();
}

}  // namespace specd::replay
