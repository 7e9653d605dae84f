#include "tools/replay/step_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
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

template <class T>
uint64_t ValueHash(const T& value) {
  return Hash().Value(value).value();
}

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

// The places that the round judged; `block` looks at the whole draft.
size_t NumJudged(const TraceTask& task) {
  const int32_t last =
      task.method == VerifyMethod::kBlock ? task.outcome.num_drafts : task.outcome.num_accepted;
  const int32_t num_nodes = static_cast<int32_t>(task.tokens.size());
  return static_cast<size_t>(std::clamp(last, 0, num_nodes)) + 1;
}

// One number for each place that was judged; empty: they were not recorded.
using Facts = std::vector<uint64_t>;

Facts TargetHashes(const TraceRound& round, const TraceTask& task) {
  const RowHashes hashes = HashesOf(round);
  Facts facts;
  for (size_t i = 0; i < NumJudged(task) && i < task.target_rows.size(); ++i) {
    facts.push_back(HashOf(hashes, TraceTensor::kTarget, task.target_rows[i]));
    if (facts.back() == 0) return {};
  }
  return facts;
}

Facts DraftHashes(const TraceRound& round, const TraceTask& task) {
  const RowHashes hashes = HashesOf(round);
  Facts facts;
  bool has_hash = false;
  for (size_t i = 0; i < NumJudged(task) && i < task.tokens.size(); ++i) {
    const bool is_sampled = i < task.kinds.size() && task.kinds[i] == DraftKind::kSampled;
    const bool has_row = is_sampled && i < task.draft_rows.size() && task.tokens[i] != kNoToken;
    facts.push_back(has_row ? HashOf(hashes, TraceTensor::kDraft, task.draft_rows[i]) : 0);
    if (has_row && facts.back() == 0) return {};
    has_hash = has_hash || has_row;
  }
  return has_hash ? facts : Facts();
}

Facts SharesP(const TraceTask& task) {
  Facts facts;
  bool has_share = false;
  for (size_t i = 0; i < NumJudged(task) && i < task.decisions.size(); ++i) {
    const PlaceDecision& d = task.decisions[i];
    has_share = has_share || d.p_mass > 0;
    facts.push_back(Hash().Value(d.p_weight).Value(d.p_mass).value());
  }
  return has_share ? facts : Facts();
}

Facts SharesQ(const TraceTask& task) {
  Facts facts;
  bool has_share = false;
  for (size_t i = 0; i < NumJudged(task) && i < task.decisions.size(); ++i) {
    const PlaceDecision& d = task.decisions[i];
    has_share = has_share || d.q_mass > 0;
    facts.push_back(Hash().Value(d.q_weight).Value(d.q_mass).value());
  }
  return has_share ? facts : Facts();
}

Facts ArgmaxIds(const TraceTask& task) {
  Facts facts;
  for (size_t i = 0; i < NumJudged(task) && i < task.target_argmax.size(); ++i) {
    facts.push_back(ValueHash(task.target_argmax[i]));
  }
  return facts;
}

const TracePlace& PlaceAt(const TraceTask& task, size_t i) {
  static const TracePlace kNone;
  return i < task.places.size() ? task.places[i] : kNone;
}

// The states of a grammar are numbers of one process, so masks alone are compared.
Facts MaskHashes(const TraceRound& round, const TraceTask& task) {
  if (round.level < TraceLevel::kHashes) return {};
  const RowHashes hashes = HashesOf(round);
  Facts facts;
  for (size_t i = 0; i < NumJudged(task); ++i) {
    const TracePlace& place = PlaceAt(task, i);
    const bool is_own = place.mask_row >= 0;
    const TraceTensor tensor = is_own ? TraceTensor::kMask : TraceTensor::kGrammarMask;
    const int64_t row = is_own ? place.mask_row : place.grammar_mask;
    facts.push_back(HashOf(hashes, tensor, row));
    if (row >= 0 && facts.back() == 0) return {};
  }
  return facts;
}

bool HasMasks(const TraceTask& task) {
  for (size_t i = 0; i < NumJudged(task); ++i) {
    const TracePlace& place = PlaceAt(task, i);
    if (place.grammar_state != 0 || place.mask_row >= 0 || place.grammar_mask >= 0) return true;
  }
  return false;
}

Facts ForcedIds(const TraceTask& task) {
  Facts facts;
  for (size_t i = 0; i < NumJudged(task); ++i) {
    const TracePlace& place = PlaceAt(task, i);
    facts.push_back(Hash().Value(place.forced).Value(place.below_min_tokens).value());
  }
  return facts;
}

bool HasEdits(const TraceRound& round) { return round.level == TraceLevel::kRows; }

// The members of a task that are parameters; the edits are recorded with the rows only.
template <class V>
void VisitParameters(bool with_edits, V&& visit) {
  VisitFields(RecordType<TraceTask>{}, [&](const char* name, auto member) {
    const std::string_view known(name);
    for (const std::string_view wanted :
         {"method", "target_scale", "draft_scale", "round_base", "first_position", "min_tokens",
          "draft_edits", "target_filters", "draft_filters", "scores", "chosen", "penalties",
          "num_edits", "edits", "allowed"}) {
      const bool is_edit = wanted == "edits" || wanted == "allowed";
      if (known == wanted && (with_edits || !is_edit)) visit(name, member);
    }
  });
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
    if (ValueHash(a.draft_weights) != ValueHash(b.draft_weights)) {
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

uint64_t OutcomeHash(const TraceTask& task) {
  return Hash()
      .Value(task.outcome.status)
      .Value(task.outcome.num_accepted)
      .List(task.confirmed)
      .value();
}

}  // namespace

namespace {

using Digest = std::optional<uint64_t>;

Digest DigestOf(const Facts& facts) {
  return facts.empty() ? std::nullopt : Digest(ValueHash(facts));
}

bool AreComparable(const Digest& a, const Digest& b) { return a.has_value() && b.has_value(); }
bool MayBeEqual(const Digest& a, const Digest& b) { return !AreComparable(a, b) || a == b; }
// The hashes, and where one of the two has none, the shares that came of the rows.
bool SameRows(const Digest& a_hash, const Digest& b_hash, const Digest& a_share,
              const Digest& b_share) {
  return AreComparable(a_hash, b_hash) ? a_hash == b_hash : MayBeEqual(a_share, b_share);
}

}  // namespace

bool StepDigest::MayEqual(const StepDigest& other) const {
  return parameters == other.parameters && MayBeEqual(edits, other.edits) && coins == other.coins &&
         draft == other.draft && forced == other.forced &&
         SameRows(target_hashes, other.target_hashes, shares_p, other.shares_p) &&
         SameRows(draft_hashes, other.draft_hashes, shares_q, other.shares_q) &&
         MayBeEqual(argmax, other.argmax) && MayBeEqual(masks, other.masks) &&
         outcome == other.outcome;
}

bool StepDigest::LacksMasks(const StepDigest& other) const {
  return (has_masks || other.has_masks) && !AreComparable(masks, other.masks);
}

StepDigest DigestOf(const TraceRound& round, const TraceTask& task) {
  StepDigest digest;
  digest.round = round.number;
  Hash parameters;
  VisitParameters(false,
                  [&](const char*, auto member) { parameters.Put(ValueHash(task.*member)); });
  digest.parameters = parameters.value();
  if (HasEdits(round)) {
    Hash edits;
    edits.List(task.edits).List(task.allowed);
    for (const TracePlace& place : task.places) edits.Put(ValueHash(place.overrides));
    digest.edits = edits.value();
  }
  digest.coins = Hash().Put(task.seed).List(task.coins).value();
  digest.draft = Hash().List(task.tokens).List(task.kinds).List(task.draft_weights).value();
  digest.target_hashes = DigestOf(TargetHashes(round, task));
  digest.draft_hashes = DigestOf(DraftHashes(round, task));
  digest.shares_p = DigestOf(SharesP(task));
  digest.shares_q = DigestOf(SharesQ(task));
  digest.argmax = DigestOf(ArgmaxIds(task));
  digest.masks = DigestOf(MaskHashes(round, task));
  digest.has_masks = HasMasks(task);
  digest.forced = ValueHash(ForcedIds(task));
  digest.outcome = OutcomeHash(task);
  return digest;
}

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
