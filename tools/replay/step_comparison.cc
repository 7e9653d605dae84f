#include "tools/replay/step_comparison.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tools/replay/names.h"
#include "tools/replay/record_hash.h"
#include "tools/replay/sequence_book.h"
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
  } else if constexpr (std::is_same_v<T, RoundStatus> || std::is_same_v<T, FinishReason>) {
    return std::string(NameOf(value));
  } else if constexpr (std::is_same_v<T, Refusal>) {
    return value == Refusal::kNone ? "none" : fmt::format("\"{}\"", RefusalText(value));
  } else if constexpr (std::is_same_v<T, Filters>) {
    return FiltersText(value);
  } else if constexpr (std::is_same_v<T, Penalties>) {
    return fmt::format("repetition {}, frequency {}, presence {}", value.repetition,
                       value.frequency, value.presence);
  } else if constexpr (std::is_same_v<T, LossyRule>) {
    return fmt::format("epsilon {}, delta {}, single {}, acc {}, n {}", value.epsilon, value.delta,
                       value.single, value.acc, value.num_best);
  } else if constexpr (std::is_same_v<T, Rng>) {
    return value == Rng::kSglang ? "sglang" : "philox";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", value);
  } else {
    return "other";
  }
}

// The first score that differs.
std::string ScoresText(const std::vector<TokenScore>& a, const std::vector<TokenScore>& b) {
  if (a.size() != b.size()) {
    return fmt::format("there are {} scores in A and {} in B", a.size(), b.size());
  }
  size_t i = 0;
  while (i + 1 < a.size() && ValueHash(a[i]) == ValueHash(b[i])) ++i;
  const auto text = [](const TokenScore& score) {
    return fmt::format("id {}, value {}, rank {}", score.id, score.value, score.rank);
  };
  return fmt::format("score {} is ({}) in A and ({}) in B", i, text(a[i]), text(b[i]));
}

class Comparison {
 public:
  void Add(std::string_view cause, std::string text) {
    differences.push_back({std::string(cause), std::move(text)});
  }

  void Parameters(const TraceRound& a_round, const TraceTask& a, const TraceRound& b_round,
                  const TraceTask& b) {
    const bool has_lists = HasLists(a_round) && HasLists(b_round);
    const bool has_hashes = a.edits_hash != 0 && b.edits_hash != 0;
    VisitParameters(has_lists, [&](const char* name, auto member) {
      const auto& x = a.*member;
      const auto& y = b.*member;
      if (ValueHash(x) == ValueHash(y)) return;
      // The edits themselves say more than their number.
      if (std::string_view(name) == "num_edits" &&
          (has_lists ? ValueHash(a.edits) != ValueHash(b.edits) : has_hashes)) {
        return;
      }
      if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::vector<TokenEdit>>) {
        Add("parameters", EditsText(x, y));
      } else {
        Add("parameters",
            fmt::format("{} is {} in A and {} in B", name, ValueText(x), ValueText(y)));
      }
    });
    if (UsesTarget(a) && UsesTarget(b)) Rules("target", a_round.target.rules, b_round.target.rules);
    if (UsesDraft(a) && UsesDraft(b)) Rules("draft", a_round.draft.rules, b_round.draft.rules);
    if (has_lists) {
      Overrides(a, b);
    } else {
      Hashes(EditsOf(a_round, a), EditsOf(b_round, b),
             a.num_edits == b.num_edits ? "the token edits differ"
                                        : fmt::format("the token edits differ: {} in A and {} in B",
                                                      a.num_edits, b.num_edits));
      // They follow the draft too.
      if (a.tokens == b.tokens) {
        Hashes(OverridesOf(a_round, a), OverridesOf(b_round, b),
               "the token edits of the draft's places differ");
      }
    }
  }

  void Rules(std::string_view tensor, const ElementRules& a, const ElementRules& b) {
    VisitFields(RecordType<ElementRules>{}, [&](const char* name, auto member) {
      if (ValueHash(a.*member) == ValueHash(b.*member)) return;
      Add("parameters", fmt::format("{} of the {} rows is {} in A and {} in B", name, tensor,
                                    ValueText(a.*member), ValueText(b.*member)));
    });
  }

  // The edits of places come from parameters that look back at the text, and so at the draft.
  void Overrides(const TraceTask& a, const TraceTask& b) {
    if (a.drafts_by_slot || b.drafts_by_slot) return;  // those of the processor have no record
    for (size_t i = 0; i < a.places.size() && i < b.places.size(); ++i) {
      if (i > 0 &&
          (i > a.tokens.size() || i > b.tokens.size() || a.tokens[i - 1] != b.tokens[i - 1]))
        return;
      if (ValueHash(a.places[i].overrides) == ValueHash(b.places[i].overrides)) continue;
      Add("parameters",
          fmt::format("place {}: {}", i, EditsText(a.places[i].overrides, b.places[i].overrides)));
      return;
    }
  }

  void Hashes(const std::optional<uint64_t>& a, const std::optional<uint64_t>& b,
              std::string_view text) {
    if (!a || !b || *a == *b) return;
    Add("parameters", fmt::format("{} (record level=rows to see which)", text));
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
  void Places(std::string_view cause, std::string_view what, const Facts& a, const Facts& b,
              std::string_view verb = "differ") {
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      if (a[i] == b[i]) continue;
      return Add(cause, fmt::format("{} of place {} {}", what, i, verb));
    }
  }

  std::vector<StepDifference> differences;
};

// Inputs that may differ unseen: the causes that they stand for, and what was not recorded.
struct Unseen {
  void Add(std::string_view cause, std::string_view input) {
    causes += fmt::format("{}{}", causes.empty() ? "" : " or ", cause);
    inputs += fmt::format("{}{}", inputs.empty() ? "" : " or ", input);
  }
  std::string causes;
  std::string inputs;
};

Unseen UnseenOf(const StepDigest& a, const StepDigest& b, bool with_rows) {
  Unseen unseen;
  if (with_rows) unseen.Add("rows", "the rows");
  if (a.LacksDraft(b)) unseen.Add("draft", "draft tokens that were not recorded");
  if (a.LacksEdits(b)) unseen.Add("parameters", "a parameter that was not recorded");
  if (a.LacksMasks(b)) unseen.Add("grammar", "a mask that was not recorded");
  return unseen;
}

void CompareRows(const TraceRound& a_round, const TraceTask& a, const TraceRound& b_round,
                 const TraceTask& b, Comparison* comparison) {
  const Unseen unseen = UnseenOf(DigestOf(a_round, a), DigestOf(b_round, b), true);
  const auto rows = [&](std::string_view tensor, const Facts& a_hashes, const Facts& b_hashes,
                        std::string_view share, const Facts& a_shares, const Facts& b_shares) {
    if (!a_hashes.empty() && !b_hashes.empty()) {
      return comparison->Places("rows", fmt::format("the {} rows", tensor), a_hashes, b_hashes);
    }
    // p and q stand for the rows, and they change with a parameter and a mask too.
    if (!comparison->differences.empty()) return;
    if (unseen.causes == "rows") {
      comparison->Places("rows", fmt::format("{}, and so the {} rows,", share, tensor), a_shares,
                         b_shares);
    } else {
      comparison->Places(unseen.causes, share, a_shares, b_shares,
                         "differs, and so do " + unseen.inputs);
    }
  };
  rows("target", TargetHashes(a_round, a), TargetHashes(b_round, b), "p", SharesP(a), SharesP(b));
  rows("draft", DraftHashes(a_round, a), DraftHashes(b_round, b), "q", SharesQ(a), SharesQ(b));
  comparison->Places("rows", "the argmax ids", ArgmaxIds(a), ArgmaxIds(b));
}

void CompareOutcomes(const TraceRound& a_round, const TraceTask& a, const TraceRound& b_round,
                     const TraceTask& b, Comparison* comparison) {
  const bool has_same_tokens = a.outcome.status == b.outcome.status &&
                               a.outcome.num_accepted == b.outcome.num_accepted &&
                               a.confirmed == b.confirmed;
  if (has_same_tokens) return;
  const std::string tokens = fmt::format("the tokens are [{}] in A and [{}] in B",
                                         fmt::join(a.confirmed, " "), fmt::join(b.confirmed, " "));
  if (!comparison->differences.empty()) return comparison->Add("outcome", tokens);
  const StepDigest a_digest = DigestOf(a_round, a);
  const StepDigest b_digest = DigestOf(b_round, b);
  const Unseen unseen = UnseenOf(a_digest, b_digest, a_digest.LacksRows(b_digest));
  if (unseen.causes.empty()) return comparison->Add("decision", tokens + ", from equal inputs");
  comparison->Add(unseen.causes,
                  fmt::format("{}, from inputs that are equal as far as they were recorded; the "
                              "cause may be {}",
                              tokens, unseen.inputs));
}

// The counts follow from the tokens.
void CompareAnswers(const TraceRound& a_round, const TraceTask& a, const TraceRound& b_round,
                    const TraceTask& b, Comparison* comparison) {
  const TraceAnswer* const x = AnswerOf(a_round, a);
  const TraceAnswer* const y = AnswerOf(b_round, b);
  const bool has_same_tokens = a.confirmed == b.confirmed;
  if (x != nullptr && y != nullptr) {
    VisitAnswer([&](const char* name, auto member) {
      const bool is_count = std::is_same_v<std::decay_t<decltype(x->*member)>, uint32_t>;
      if (x->*member == y->*member || (is_count && !has_same_tokens)) return;
      comparison->Add("answer", fmt::format("{} is {} in A and {} in B", name,
                                            ValueText(x->*member), ValueText(y->*member)));
    });
  }
  if (!has_same_tokens) return;
  const auto differ = [](const std::optional<uint64_t>& one, const std::optional<uint64_t>& other) {
    return one && other && *one != *other;
  };
  if (differ(PathHash(a), PathHash(b))) {
    comparison->Add("answer", fmt::format("the path is [{}] in A and [{}] in B",
                                          fmt::join(a.path, " "), fmt::join(b.path, " ")));
  }
  if (differ(ScoresHash(a), ScoresHash(b))) {
    comparison->Add("answer", ScoresText(a.token_scores, b.token_scores));
  }
}

}  // namespace

std::vector<StepDifference> CompareSteps(const TraceRound& a_round, const TraceTask& a,
                                         const TraceRound& b_round, const TraceTask& b) {
  Comparison comparison;
  comparison.Parameters(a_round, a, b_round, b);
  comparison.Coins(a, b);
  comparison.Draft(a, b);
  if (a.tokens.size() == b.tokens.size()) {
    CompareRows(a_round, a, b_round, b, &comparison);
    comparison.Places("grammar", "the masks", MaskHashes(a_round, a), MaskHashes(b_round, b));
    comparison.Places("grammar", "the forced tokens, or min_tokens,", ForcedIds(a), ForcedIds(b));
  }
  CompareOutcomes(a_round, a, b_round, b, &comparison);
  CompareAnswers(a_round, a, b_round, b, &comparison);
  return std::move(comparison.differences);
}

}  // namespace specd::replay
