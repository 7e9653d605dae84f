#include "speculative/grammar/json_schema/dfa_table.h"

#include <atomic>
#include <memory>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "speculative/grammar/automata/dfa_operations.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {

SharedDfa DfaTable::Share(SharedDfa dfa) {
  const uint32_t hash = absl::HashOf(*dfa);
  const uint32_t known =
      numbers_.Find(hash, [&](uint32_t number) { return *all_[number] == *dfa; });
  if (known != IdTable::kNone) return all_[known];
  numbers_.Reserve();
  all_.push_back(dfa);
  numbers_.Insert(hash, static_cast<uint32_t>(all_.size() - 1));
  return dfa;
}

SharedDfa DfaTable::Share(ByteDfa dfa) {
  return Share(std::make_shared<const ByteDfa>(std::move(dfa)));
}

absl::StatusOr<SharedDfa> DfaTable::Remember(
    const Pair& pair, HashMap<Pair, SharedDfa>* known,
    absl::FunctionRef<absl::StatusOr<ByteDfa>(const ByteDfa&, const ByteDfa&)> operation) {
  if (const auto found = known->find(pair); found != known->end()) return found->second;
  absl::StatusOr<ByteDfa> made = operation(*pair.first, *pair.second);
  if (!made.ok()) return made.status();
  return (*known)[pair] = Share(*std::move(made));
}

absl::StatusOr<SharedDfa> DfaTable::Intersect(const SharedDfa& a, const SharedDfa& b) {
  if (a == nullptr || a == b) return b;
  if (b == nullptr) return a;
  const Pair pair = a < b ? Pair(a, b) : Pair(b, a);
  return Remember(pair, &intersections_,
                  [](const ByteDfa& x, const ByteDfa& y) { return grammar::Intersect(x, y); });
}

absl::StatusOr<SharedDfa> DfaTable::Subtract(const SharedDfa& a, const SharedDfa& b) {
  SharedDfa from = a;
  if (from == nullptr) {
    absl::StatusOr<ByteDfa> all = AllStrings();
    if (!all.ok()) return all.status();
    from = Share(*std::move(all));
  }
  return Remember({from, b}, &differences_,
                  [](const ByteDfa& x, const ByteDfa& y) { return grammar::Subtract(x, y); });
}

bool DfaTable::Overlap(const SharedDfa& a, const SharedDfa& b) {
  const auto [known, is_new] = overlaps_.try_emplace(a < b ? Pair(a, b) : Pair(b, a), true);
  if (is_new) known->second = grammar::Overlap(*a, *b);
  return known->second;
}

absl::StatusOr<ByteDfa> AllStrings() {
  // Made once for the process. Pairs with the exchange: who sees the automaton sees its states.
  static std::atomic<const ByteDfa*> made{nullptr};
  if (const ByteDfa* all = made.load(std::memory_order_acquire); all != nullptr) return *all;
  GrammarRules rules;
  absl::StatusOr<ByteDfa> all = Determinize(rules, rules.Star(rules.Chars(CharSet::All())));
  if (!all.ok()) return all;
  auto kept = std::make_unique<const ByteDfa>(*all);
  const ByteDfa* none = nullptr;
  if (made.compare_exchange_strong(none, kept.get(), std::memory_order_acq_rel)) kept.release();
  return all;
}

}  // namespace specd::grammar
