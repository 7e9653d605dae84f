#include "tools/replay/step_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "daemon/trace/trace_codec.h"
#include "daemon/trace/trace_fields.h"
#include "tools/replay/names.h"

namespace specd::replay {
namespace {

// FNV-1a over 64-bit words, then SplitMix64's finaliser: for tables of this process only.
class Hash {
 public:
  Hash& Put(uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3;
    value_ ^= value_ >> 29;
    return *this;
  }
  template <class T>
  Hash& List(const std::vector<T>& values) {
    Put(values.size());
    for (const T& value : values) Value(value);
    return *this;
  }
  template <class T>
  Hash& Value(const T& value) {
    if constexpr (std::is_same_v<T, float>) {
      return Put(std::bit_cast<uint32_t>(value));
    } else if constexpr (std::is_same_v<T, double>) {
      return Put(std::bit_cast<uint64_t>(value));
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      return Put(static_cast<uint64_t>(value));
    } else if constexpr (requires { value.begin(); }) {
      return List(value);
    } else {
      VisitFields(RecordType<T>{}, [&](const char*, auto member) { Value(value.*member); });
      return *this;
    }
  }
  uint64_t value() const {
    uint64_t x = value_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

using RowHashes = std::unordered_map<uint64_t, uint64_t>;

uint64_t KeyOf(TraceTensor tensor, uint32_t index) {
  return uint64_t{static_cast<uint32_t>(tensor)} << 32 | index;
}

RowHashes HashesOf(const TraceRound& round) {
  RowHashes hashes;
  for (const TraceRow& row : round.rows) {
    if (row.hash != 0) hashes[KeyOf(row.tensor, row.index)] = row.hash;
  }
  return hashes;
}

uint64_t HashOf(const RowHashes& hashes, TraceTensor tensor, int64_t index) {
  if (index < 0) return 0;
  const auto found = hashes.find(KeyOf(tensor, static_cast<uint32_t>(index)));
  return found == hashes.end() ? 0 : found->second;
}

// The row of each place, by its hash, or by p and q where a decision has them.
std::vector<uint64_t> RowFacts(const TraceRound& round, const TraceTask& task) {
  const RowHashes hashes = HashesOf(round);
  std::vector<uint64_t> facts;
  for (size_t i = 0; i <= task.tokens.size(); ++i) {
    Hash hash;
    const bool has_target = i < task.target_rows.size();
    const uint64_t target =
        has_target ? HashOf(hashes, TraceTensor::kTarget, task.target_rows[i]) : 0;
    const bool is_sampled = i < task.kinds.size() && task.kinds[i] == DraftKind::kSampled;
    const uint64_t draft = is_sampled && i < task.draft_rows.size()
                               ? HashOf(hashes, TraceTensor::kDraft, task.draft_rows[i])
                               : 0;
    hash.Put(target).Put(draft);
    if (i < task.target_argmax.size()) hash.Value(task.target_argmax[i]);
    if (target == 0 && i < task.decisions.size()) {
      const PlaceDecision& d = task.decisions[i];
      hash.Value(d.p_weight).Value(d.p_mass).Value(d.q_weight).Value(d.q_mass);
    }
    facts.push_back(hash.value());
  }
  return facts;
}

std::vector<uint64_t> GrammarFacts(const TraceRound& round, const TraceTask& task) {
  const RowHashes hashes = HashesOf(round);
  std::vector<uint64_t> facts;
  for (const TracePlace& place : task.places) {
    Hash hash;
    hash.Put(place.grammar_state).Value(place.forced).Value(place.below_min_tokens);
    hash.Put(HashOf(hashes, TraceTensor::kMask, place.mask_row));
    hash.Put(HashOf(hashes, TraceTensor::kGrammarMask, place.grammar_mask));
    hash.Put((place.mask_row >= 0 ? 1 : 0) + (place.grammar_mask >= 0 ? 2 : 0));
    facts.push_back(hash.value());
  }
  return facts;
}

// The members of a task that are parameters.
template <class V>
void VisitParameters(V&& visit) {
  VisitFields(RecordType<TraceTask>{}, [&](const char* name, auto member) {
    const std::string_view known(name);
    for (const std::string_view wanted :
         {"method", "target_scale", "draft_scale", "round_base", "first_position", "min_tokens",
          "draft_edits", "target_filters", "draft_filters", "scores", "chosen", "penalties",
          "num_edits", "edits", "allowed"}) {
      if (known == wanted) visit(name, member);
    }
  });
}

template <class T>
uint64_t ValueHash(const T& value) {
  return Hash().Value(value).value();
}

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

  void Parameters(const TraceTask& a, const TraceTask& b) {
    VisitParameters([&](const char* name, auto member) {
      const auto& x = a.*member;
      const auto& y = b.*member;
      if (ValueHash(x) == ValueHash(y)) return;
      // The edits themselves say more than their number.
      if (std::string_view(name) == "num_edits" && ValueHash(a.edits) != ValueHash(b.edits)) return;
      if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::vector<TokenEdit>>) {
        Add("parameters", EditsText(x, y));
      } else {
        Add("parameters",
            fmt::format("{} is {} in A and {} in B", name, ValueText(x), ValueText(y)));
      }
    });
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
    if (ValueHash(a.draft_weights) != ValueHash(b.draft_weights)) {
      Add("draft", "the side channel's q(x) differs");
    }
  }

  void Facts(std::string_view cause, std::string_view what, const std::vector<uint64_t>& a,
             const std::vector<uint64_t>& b) {
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      if (a[i] == b[i]) continue;
      return Add(cause, fmt::format("{} of place {} differ", what, i));
    }
    if (a.size() != b.size())
      Add(cause, fmt::format("{} are of {} and {} places", what, a.size(), b.size()));
  }

  std::vector<StepDifference> differences;
};

uint64_t OutcomeHash(const TraceTask& task) {
  return Hash()
      .Value(task.outcome.status)
      .Value(task.outcome.num_accepted)
      .List(task.confirmed)
      .value();
}

}  // namespace

bool StepDigest::operator==(const StepDigest& other) const {
  return parameters == other.parameters && coins == other.coins && draft == other.draft &&
         rows == other.rows && grammar == other.grammar && outcome == other.outcome;
}

StepDigest DigestOf(const TraceRound& round, const TraceTask& task) {
  StepDigest digest;
  digest.round = round.number;
  Hash parameters;
  VisitParameters([&](const char*, auto member) { parameters.Put(ValueHash(task.*member)); });
  for (const TracePlace& place : task.places) parameters.Put(ValueHash(place.overrides));
  digest.parameters = parameters.value();
  digest.coins = Hash().Put(task.seed).List(task.coins).value();
  digest.draft = Hash().List(task.tokens).List(task.kinds).List(task.draft_weights).value();
  digest.rows = ValueHash(RowFacts(round, task));
  digest.grammar = ValueHash(GrammarFacts(round, task));
  digest.outcome = OutcomeHash(task);
  return digest;
}

std::vector<StepDifference> CompareSteps(const TraceRound& a_round, const TraceTask& a,
                                         const TraceRound& b_round, const TraceTask& b) {
  Comparison comparison;
  comparison.Parameters(a, b);
  comparison.Coins(a, b);
  comparison.Draft(a, b);
  const bool same_length = a.tokens.size() == b.tokens.size();
  if (same_length) {
    const bool are_hashed = !HashesOf(a_round).empty() && !HashesOf(b_round).empty();
    // Without hashes p and q stand for the rows, and they change with a parameter too.
    if (are_hashed || comparison.differences.empty()) {
      comparison.Facts("rows", are_hashed ? "the rows" : "p or q, and so the rows,",
                       RowFacts(a_round, a), RowFacts(b_round, b));
    }
    comparison.Facts("grammar", "the grammar's states or masks", GrammarFacts(a_round, a),
                     GrammarFacts(b_round, b));
  }
  if (OutcomeHash(a) != OutcomeHash(b)) {
    const bool is_unexplained = comparison.differences.empty();
    comparison.Add(
        is_unexplained ? "decision" : "outcome",
        fmt::format("the tokens are [{}] in A and [{}] in B{}", fmt::join(a.confirmed, " "),
                    fmt::join(b.confirmed, " "),
                    is_unexplained ? ", from equal inputs as far as they were recorded" : ""));
  }
  return std::move(comparison.differences);
}

}  // namespace specd::replay
