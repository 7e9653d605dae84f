#include "tools/replay/step_comparison.h"

#include <fmt/format.h>

#include <string_view>
#include <type_traits>
#include <utility>

#include "tools/replay/names.h"
#include "tools/replay/record_hash.h"
#include "tools/replay/step_digest.h"
#include "tools/replay/step_facts.h"

namespace specd::replay {
namespace {

std::string EditText(const TokenEdit& edit) {
  return fmt::format("id {}: bias {}, count {}, flags {}", edit.id, edit.bias, edit.count,
                     edit.flags);
}

// The first edit that differs.
std::string EditsText(const std::vector<TokenEdit>& a, const std::vector<TokenEdit>& b) {
  size_t i = 0;
  while (i < a.size() && i < b.size() && ValueHash(a[i]) == ValueHash(b[i])) ++i;
  const std::string in_a = i < a.size() ? EditText(a[i]) : "no such edit";
  const std::string in_b = i < b.size() ? EditText(b[i]) : "no such edit";
  return fmt::format("the token edits differ: {} in A, {} in B", in_a, in_b);
}

std::string FiltersText(const Filters& f) {
  return fmt::format("top_k {}, top_p {:.6g}, log2 min_p {}, {}", f.top_k, CoinToDouble(f.top_p),
                     f.min_p, f.joint ? "joint" : "sequential");
}

template <class T>
std::string ValueText(const T& value) {
  if constexpr (std::is_same_v<T, VerifyMethod>) {
    return std::string(NameOf(value));
  } else if constexpr (std::is_same_v<T, Filters>) {
    return FiltersText(value);
  } else if constexpr (std::is_same_v<T, Penalties>) {
    return fmt::format("repetition {}, frequency {}, presence {}", value.repetition,
                       value.frequency, value.presence);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", value);
  } else {
    return "other";
  }
}

class Comparison {
 public:
  void Add(std::string_view cause, std::string text) {
    differences.push_back({std::string(cause), std::move(text)});
  }

  void Parameters(const TraceTask& a, const TraceTask& b, bool with_edits) {
    VisitParameters(with_edits, [&](const char* name, auto member) {
      const auto& x = a.*member;
      const auto& y = b.*member;
      if (ValueHash(x) == ValueHash(y)) return;
      // The edits themselves say more than their number.
      if (std::string_view(name) == "num_edits" && with_edits &&
          ValueHash(a.edits) != ValueHash(b.edits)) {
        return;
      }
      if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::vector<TokenEdit>>) {
        Add("parameters", EditsText(x, y));
      } else {
        Add("parameters",
            fmt::format("{} is {} in A and {} in B", name, ValueText(x), ValueText(y)));
      }
    });
    if (!with_edits) return;
    // The edits of places come from parameters that look back at the text.
    for (size_t i = 0; i < a.places.size() && i < b.places.size(); ++i) {
      if (ValueHash(a.places[i].overrides) == ValueHash(b.places[i].overrides)) continue;
      Add("parameters",
          fmt::format("place {}: {}", i, EditsText(a.places[i].overrides, b.places[i].overrides)));
      return;
    }
  }

  void Coins(const TraceTask& a, const TraceTask& b) {
    if (a.seed != b.seed)
      Add("coins", fmt::format("the seed is {} in A and {} in B", a.seed, b.seed));
    if (ValueHash(a.coins) != ValueHash(b.coins)) {
      Add("coins", fmt::format("{} coins were set in A and {} in B, not the same", a.coins.size(),
                               b.coins.size()));
    }
    for (size_t i = 0; i < a.decisions.size() && i < b.decisions.size(); ++i) {
      const uint64_t x = a.decisions[i].accept_coin;
      const uint64_t y = b.decisions[i].accept_coin;
      if (x == y || x == kNoCoin || y == kNoCoin || a.seed != b.seed) continue;
      Add("coins", fmt::format("the ACCEPT coin of place {} is {} in A and {} in B", i, x, y));
      return;
    }
  }

  void Draft(const TraceTask& a, const TraceTask& b) {
    if (a.tokens != b.tokens) {
      Add("draft", fmt::format("the draft is [{}] in A and [{}] in B", fmt::join(a.tokens, " "),
                               fmt::join(b.tokens, " ")));
    }
    if (a.kinds != b.kinds) Add("draft", "the kinds of the draft tokens differ");
    if (ValueHash(a.draft_weights) != ValueHash(b.draft_weights) ||
        ValueHash(a.draft_masses) != ValueHash(b.draft_masses)) {
      Add("draft", "the side channel's q(x) differs");
    }
  }

  // What only one of the two has is not compared.
  void Places(std::string_view cause, std::string_view what, const Facts& a, const Facts& b) {
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      if (a[i] == b[i]) continue;
      return Add(cause, fmt::format("{} of place {} differ", what, i));
    }
  }

  std::vector<StepDifference> differences;
};

}  // namespace

std::vector<StepDifference> CompareSteps(const TraceRound& a_round, const TraceTask& a,
                                         const TraceRound& b_round, const TraceTask& b) {
  Comparison comparison;
  comparison.Parameters(a, b, HasEdits(a_round) && HasEdits(b_round));
  comparison.Coins(a, b);
  comparison.Draft(a, b);
  if (a.tokens.size() == b.tokens.size()) {
    const auto rows = [&](std::string_view what, const Facts& a_hashes, const Facts& b_hashes,
                          std::string_view share, const Facts& a_shares, const Facts& b_shares) {
      if (!a_hashes.empty() && !b_hashes.empty()) {
        comparison.Places("rows", what, a_hashes, b_hashes);
      } else if (comparison.differences.empty()) {
        // p and q stand for the rows, and they change with a parameter too.
        comparison.Places("rows", share, a_shares, b_shares);
      }
    };
    rows("the target rows", TargetHashes(a_round, a), TargetHashes(b_round, b),
         "p, and so the target rows,", SharesP(a), SharesP(b));
    rows("the draft rows", DraftHashes(a_round, a), DraftHashes(b_round, b),
         "q, and so the draft rows,", SharesQ(a), SharesQ(b));
    comparison.Places("rows", "the argmax ids", ArgmaxIds(a), ArgmaxIds(b));
    comparison.Places("grammar", "the masks", MaskHashes(a_round, a), MaskHashes(b_round, b));
    comparison.Places("grammar", "the forced tokens, or min_tokens,", ForcedIds(a), ForcedIds(b));
  }
  if (OutcomeHash(a) != OutcomeHash(b)) {
    const bool is_unexplained = comparison.differences.empty();
    const bool lacks_masks = DigestOf(a_round, a).LacksMasks(DigestOf(b_round, b));
    comparison.Add(
        is_unexplained ? "decision" : "outcome",
        fmt::format("the tokens are [{}] in A and [{}] in B{}{}", fmt::join(a.confirmed, " "),
                    fmt::join(b.confirmed, " "),
                    is_unexplained ? ", from equal inputs as far as they were recorded" : "",
                    lacks_masks ? "; the masks were not recorded in both" : ""));
  }
  return std::move(comparison.differences);
}

}  // namespace specd::replay
