// The law of the output equals the target's, by enumeration (CONTRACT §10, "Exact").
//
// A coin is an interval; the oracle says at which points of it the decision changes. Every cell of
// that division is entered, the kernel is run at its corners (just inside both ends of every coin's
// interval) and must decide as the oracle says, and the cell's volume is the probability of what
// was emitted. Rounds follow one another until enough tokens are out; a coin keeps its interval for
// as long as its key is asked for again, so keys that are shared between decisions make the law
// wrong.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/run_chain.h"
#include "tests/support/oracle.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

using oracle::Probabilities;
using Tokens = std::vector<TokenId>;
using CoinIdentity = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;

struct Interval {
  double low = 0;
  double high = 1;
};
// Coins that some decision has looked at. All others are still whole.
using Coins = std::map<CoinIdentity, Interval>;

// What is wrong on purpose.
struct Fault {
  bool one_coin_for_accept_and_residual = false;  // both keyed by the position alone
  bool residual_is_p = false;                     // a rejected token is replaced from p
  bool cut_at_forbidden = false;                  // the drafter drops a token with p(x) = 0
};

struct Model {
  int32_t vocab_size = 3;
  int32_t max_draft = 2;
  size_t length = 4;           // tokens whose joint law is compared
  bool powers_of_two = false;  // thresholds are exact: the corners lie one coin from them
  DraftKind kind = DraftKind::kSampled;
  uint64_t seed = 0;
};

class Enumeration {
 public:
  Enumeration(const Model& model, const Fault& fault) : model_(model), fault_(fault) {}

  // The largest difference between the probability of a text under the kernel and the target.
  double Run() {
    Continue({}, {}, 1.0, 0);
    double worst = 0;
    double total = 0;
    for (const auto& [text, probability] : law_) {
      worst = std::max(worst, std::fabs(probability - TargetProbability(text)));
      total += probability;
    }
    CHECK(total == doctest::Approx(1.0));
    return worst;
  }

  int64_t num_kernel_runs() const { return num_kernel_runs_; }
  int most_rounds() const { return most_rounds_; }

 private:
  struct Rows {
    std::vector<double> logits;
    Probabilities p;
  };

  // The models' rows depend on the whole text so far, and hold zeros now and then.
  const Rows& RowsFor(const Tokens& context, bool is_draft) {
    auto [entry, is_new] = rows_.try_emplace({context, is_draft});
    if (!is_new) return entry->second;
    std::seed_seq seed{model_.seed, uint64_t{is_draft}, uint64_t(context.size()), Hash(context)};
    std::mt19937_64 random(seed);
    Rows& rows = entry->second;
    // Probabilities that are powers of two and sum to one: something is halved until there are
    // enough. Now and then an id has none.
    const bool has_zero = model_.vocab_size > 2 && random() % 3 == 0;
    std::vector<double> p{1.0};
    while (p.size() < size_t(model_.vocab_size) - (has_zero ? 1 : 0)) {
      const size_t split = random() % p.size();
      p[split] /= 2;
      p.push_back(p[split]);
    }
    if (has_zero) p.push_back(0);
    std::shuffle(p.begin(), p.end(), random);
    for (const double x : p) {
      const double noise = model_.powers_of_two ? 0 : double(random() % 1000) / 500;
      rows.logits.push_back(RoundTo(DType::kFloat32, std::log2(x) + noise));
    }
    rows.p = *oracle::Softmax(rows.logits, 1 / std::log(2.0));
    return rows;
  }

  static uint64_t Hash(const Tokens& context) {
    uint64_t hash = 1469598103934665603u;
    for (const TokenId token : context) hash = (hash ^ uint64_t(token + 1)) * 1099511628211u;
    return hash;
  }

  double TargetProbability(const Tokens& text) {
    double probability = 1;
    for (size_t i = 0; i < text.size(); ++i) {
      const Tokens context(text.begin(), text.begin() + i);
      probability *= RowsFor(context, false).p[text[i]];
    }
    return probability;
  }

  // All rounds from here on. `text` is kept output, `coins` what earlier rounds have looked at.
  void Continue(const Tokens& text, const Coins& coins, double probability, int round) {
    most_rounds_ = std::max(most_rounds_, round);
    if (text.size() >= model_.length) {
      law_[Tokens(text.begin(), text.begin() + model_.length)] += probability;
      return;
    }
    Propose({text, {}, {}, round}, coins, probability);
  }

  struct Round {
    Tokens text;   // kept before the round
    Tokens draft;  // accepted so far; a last one may be under judgement
    Coins used;    // the cell so far: each coin that decided, and its part
    int index;
  };

  // All draft tokens that may follow. Those behind a rejection change nothing, so each place is
  // enumerated only once it is reached.
  void Propose(const Round& round, const Coins& coins, double probability) {
    const Tokens context = Concatenate(round.text, round.draft);
    const Rows& target = RowsFor(context, false);
    const CoinKey sample_key = SampleCoin(static_cast<uint32_t>(context.size()));
    if (round.draft.size() == size_t(model_.max_draft)) {
      return Emit(round, coins, probability, sample_key, target.p, true);
    }
    const Rows& draft = RowsFor(context, true);
    for (TokenId x = 0; x < model_.vocab_size; ++x) {
      if (draft.p[x] == 0) continue;
      if (fault_.cut_at_forbidden && target.p[x] == 0) {
        Round cut = round;
        cut.draft.push_back(kNoToken);
        Emit(cut, coins, probability * draft.p[x], sample_key, target.p, true);
      } else {
        Judge(round, coins, probability * draft.p[x], x);
      }
    }
  }

  // Splits the accept coin of a draft token; then goes on, or replaces the token.
  void Judge(Round round, const Coins& coins, double probability, TokenId x) {
    const Tokens context = Concatenate(round.text, round.draft);
    const Probabilities& p = RowsFor(context, false).p;
    const Probabilities q = model_.kind == DraftKind::kSampled
                                ? RowsFor(context, true).p
                                : oracle::OneHot(x, size_t(model_.vocab_size));
    const auto position = static_cast<uint32_t>(context.size());
    const auto base = static_cast<uint32_t>(round.text.size());
    const auto node = static_cast<uint32_t>(round.draft.size());  // the last accepted one
    const double threshold = oracle::AcceptProbability(p, q, x);
    const CoinKey accept_key{position, base, node + 1, Purpose::kAccept};
    round.draft.push_back(x);
    Split(round, coins, probability, accept_key, 0, threshold,
          [&](const Round& cell, const Coins& rest, double share) { Propose(cell, rest, share); });
    Split(round, coins, probability, accept_key, threshold, 1,
          [&](const Round& cell, const Coins& rest, double share) {
            const CoinKey residual_key{position, base, node, Purpose::kResidual};
            const auto residual = oracle::Residual(p, q);
            REQUIRE(residual.has_value());
            Emit(cell, rest, share, residual_key, fault_.residual_is_p ? p : *residual,
                 !fault_.residual_is_p);
          });
  }

  // Splits the coin of the final token, runs the kernel in each cell, and goes to the next round.
  void Emit(const Round& round, const Coins& coins, double probability, const CoinKey& key,
            const Probabilities& law, bool check_kernel) {
    const size_t num_accepted = key.position - round.text.size();
    const std::vector<double> ends = oracle::IntervalEnds(law);
    for (TokenId y = 0; y < model_.vocab_size; ++y) {
      if (law[y] == 0) continue;
      Split(round, coins, probability, key, ends[y] - law[y], ends[y],
            [&](const Round& cell, const Coins& rest, double share) {
              Tokens emitted(round.draft.begin(), round.draft.begin() + num_accepted);
              emitted.push_back(y);
              if (check_kernel) CheckKernel(cell, emitted);
              Continue(Concatenate(round.text, emitted), rest, share, round.index + 1);
            });
    }
  }

  // Narrows one coin to [low, high) and goes on where anything of it is left.
  template <typename Next>
  void Split(const Round& round, const Coins& coins, double probability, const CoinKey& key,
             double low, double high, const Next& next) {
    const CoinIdentity identity = IdentityOf(key);
    const auto known = coins.find(identity);
    const Interval before = known == coins.end() ? Interval{} : known->second;
    const Interval part{std::max(before.low, low), std::min(before.high, high)};
    if (part.high - part.low < 1e-9) return;
    Coins narrowed = coins;
    narrowed[identity] = part;
    Round cell = round;
    cell.used[identity] = part;
    next(cell, narrowed, probability * (part.high - part.low) / (before.high - before.low));
  }

  CoinIdentity IdentityOf(const CoinKey& key) const {
    const bool shared = fault_.one_coin_for_accept_and_residual && key.purpose != Purpose::kSample;
    if (shared) return {key.position, 0, 0, static_cast<uint32_t>(Purpose::kAccept)};
    return {key.position, key.round_base, key.node, static_cast<uint32_t>(key.purpose)};
  }

  // The kernel must emit what the oracle says with every coin just inside either end of its part.
  void CheckKernel(const Round& cell, const Tokens& emitted) {
    if (!checked_.insert(NameOf(cell, emitted)).second) return;
    // Places that were not reached are filled with anything, ids outside the vocabulary included.
    Tokens full_draft = cell.draft;
    while (full_draft.size() < size_t(model_.max_draft)) {
      full_draft.push_back(static_cast<TokenId>(checked_.size() % 5));
    }
    const size_t num_drafts = full_draft.size();
    RowMatrix target({.vocab_size = model_.vocab_size, .num_rows = int64_t(num_drafts) + 1});
    RowMatrix draft({.vocab_size = model_.vocab_size, .num_rows = int64_t(num_drafts) + 1});
    for (size_t i = 0; i <= num_drafts; ++i) {
      const Tokens context =
          Concatenate(cell.text, Tokens(full_draft.begin(), full_draft.begin() + i));
      target.Set(int64_t(i), RowsFor(context, false).logits);
      draft.Set(int64_t(i), RowsFor(context, true).logits);
    }
    ChainCase chain(VerifyMethod::kToken, full_draft, model_.kind);
    chain.task.first_position = chain.task.round_base = static_cast<uint32_t>(cell.text.size());
    for (uint32_t corner = 0; corner < 1u << cell.used.size(); ++corner) {
      const auto coins = [&](const CoinKey& key) { return CornerOf(cell, corner, key); };
      const ChainResult result = RunScalar(chain.task, target.view(), draft.view(), coins);
      ++num_kernel_runs_;
      REQUIRE(result.outcome.status == OutcomeStatus::kOk);
      REQUIRE(result.outcome.empty_residuals == 0);
      REQUIRE(result.tokens == emitted);
      REQUIRE(result.outcome.num_accepted == int32_t(emitted.size()) - 1);
    }
  }

  // Bit n of `corner` says which end of the cell's n-th coin is meant.
  uint64_t CornerOf(const Round& cell, uint32_t corner, const CoinKey& key) const {
    const auto found = cell.used.find(IdentityOf(key));
    REQUIRE(found != cell.used.end());  // the kernel looked at a coin that decides nothing
    const auto n = std::distance(cell.used.begin(), found);
    const Interval& part = found->second;
    const bool at_high = (corner >> n & 1) != 0;
    const double end = at_high ? part.high : part.low;
    // The first coin at or above the end. Where it is a multiple of 2^-20 it is exact if the rows
    // are; elsewhere rounded fp32 weights, or integer weights, may move it (docs/ALGORITHMS.md).
    const double snapped = std::round(end * 0x1p20) * 0x1p-20;
    const bool is_edge = snapped == 0 || snapped == 1;
    const bool exact = std::fabs(end - snapped) < 1e-12 && (model_.powers_of_two || is_edge);
    const double margin = exact ? 0 : (model_.powers_of_two ? 0x1p-38 : 0x1p-18);
    if (margin > (part.high - part.low) / 2) {
      return static_cast<uint64_t>((part.high + part.low) / 2 * 0x1p53);
    }
    const double first = (exact ? snapped : end) * 0x1p53;
    return static_cast<uint64_t>(at_high ? std::ceil(first - margin * 0x1p53) - 1
                                         : std::ceil(first + margin * 0x1p53));
  }

  static std::string NameOf(const Round& cell, const Tokens& emitted) {
    std::string name;
    for (const Tokens& tokens : {cell.text, cell.draft, emitted}) {
      for (const TokenId token : tokens) name += std::to_string(token) + ",";
      name += ";";
    }
    for (const auto& [identity, part] : cell.used) {
      name += std::to_string(part.low) + "-" + std::to_string(part.high) + ",";
    }
    return name;
  }

  static Tokens Concatenate(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  const Model model_;
  const Fault fault_;
  std::map<std::pair<Tokens, bool>, Rows> rows_;
  std::map<Tokens, double> law_;
  std::set<std::string> checked_;
  int64_t num_kernel_runs_ = 0;
  int most_rounds_ = 0;
};

constexpr double kExact = 1e-9;     // of sums of products of doubles
constexpr double kVisible = 0.005;  // every fault moves some text's probability by more

TEST_SUITE("exact") {
  TEST_CASE("token: the joint law of several rounds is the target's") {
    const Model models[] = {
        {.vocab_size = 2, .max_draft = 3, .length = 5, .seed = 1},
        {.vocab_size = 3, .max_draft = 2, .length = 4, .seed = 3},
        {.vocab_size = 3, .max_draft = 2, .length = 4, .powers_of_two = true, .seed = 14},
        {.vocab_size = 4, .max_draft = 3, .length = 3, .powers_of_two = true, .seed = 2},
        {.vocab_size = 4, .max_draft = 3, .length = 3, .seed = 5},
        {.vocab_size = 4, .max_draft = 1, .length = 4, .powers_of_two = true, .seed = 6},
        {.vocab_size = 3, .max_draft = 2, .length = 3, .kind = DraftKind::kOneHot, .seed = 7},
        {.vocab_size = 3, .max_draft = 0, .length = 3, .seed = 8},
    };
    for (const Model& model : models) {
      CAPTURE(model.seed);
      Enumeration enumeration(model, {});
      const double worst = enumeration.Run();
      MESSAGE("V = ", model.vocab_size, ", K = ", model.max_draft, ": ",
              enumeration.num_kernel_runs(), " kernel runs, up to ", enumeration.most_rounds(),
              " rounds, largest difference ", worst);
      CHECK(worst < kExact);
      CHECK(enumeration.most_rounds() >= 3);
      CHECK(enumeration.num_kernel_runs() > 0);
    }
  }

  TEST_CASE("negative controls: each fault makes the law wrong") {
    const auto worst_over_seeds = [](const Fault& fault) {
      double worst = 0;
      for (uint64_t seed = 20; seed < 26; ++seed) {
        const Model model{.vocab_size = 3, .max_draft = 2, .length = 3, .seed = seed};
        worst = std::max(worst, Enumeration(model, fault).Run());
      }
      return worst;
    };
    CHECK(worst_over_seeds({}) < kExact);
    CHECK(worst_over_seeds({.one_coin_for_accept_and_residual = true}) > kVisible);
    CHECK(worst_over_seeds({.residual_is_p = true}) > kVisible);
    CHECK(worst_over_seeds({.cut_at_forbidden = true}) > kVisible);
  }
}

}  // namespace
}  // namespace specd
