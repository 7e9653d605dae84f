#include "tests/support/grammar_reference.h"

#include <algorithm>
#include <string>

#include "kernels/core/check.h"

namespace specd::grammar {
namespace {

// The state of a kBytes or kChars item whose text is complete.
constexpr uint32_t kRead = ~uint32_t{0};

// The code points whose UTF-8 begins with a given prefix.
struct Utf8Prefix {
  bool is_valid = false;
  bool is_complete = false;
  CharRange code_points;
};

// The bytes are packed in one integer, the first one highest.
Utf8Prefix ReadUtf8(uint32_t packed) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (packed >> shift != 0) bytes.push_back(static_cast<char>(packed >> shift & 0xFF));
  }
  if (bytes.empty()) bytes.push_back('\0');
  const auto lead = static_cast<uint8_t>(bytes[0]);
  size_t length = 0;
  uint32_t bits = 0;
  uint32_t smallest = 0;  // a longer spelling of a smaller code point is not UTF-8
  if (lead < 0x80) {
    length = 1, bits = lead, smallest = 0;
  } else if (lead >= 0xC0 && lead < 0xE0) {
    length = 2, bits = lead & 0x1F, smallest = 0x80;
  } else if (lead >= 0xE0 && lead < 0xF0) {
    length = 3, bits = lead & 0x0F, smallest = 0x800;
  } else if (lead >= 0xF0 && lead < 0xF8) {
    length = 4, bits = lead & 0x07, smallest = 0x10000;
  }
  if (bytes.size() > length) return {};
  for (size_t i = 1; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if ((byte & 0xC0) != 0x80) return {};
    bits = bits << 6 | (byte & 0x3F);
  }
  const auto missing_bits = static_cast<uint32_t>(6 * (length - bytes.size()));
  CharRange range{bits << missing_bits, (bits << missing_bits) + ((1U << missing_bits) - 1)};
  range.first = std::max(range.first, smallest);
  range.last = std::min(range.last, kCharMax);
  return {range.first <= range.last, missing_bits == 0, range};
}

bool HasAnyOf(const CharSet& set, const CharRange& wanted) {
  return std::any_of(set.ranges().begin(), set.ranges().end(), [&](const CharRange& range) {
    return range.first <= wanted.last && wanted.first <= range.last;
  });
}

}  // namespace

GrammarReference::GrammarReference(const GrammarRules& rules)
    : GrammarReference(rules, rules.body(rules.root())) {}

GrammarReference::GrammarReference(const GrammarRules& rules, ExprId root)
    : rules_(rules), root_(root), productive_(rules.num_exprs(), false) {
  FindProductive();
}

void GrammarReference::FindProductive() {
  for (ExprId id = 0; id < rules_.num_exprs(); ++id) {
    const Expr& expr = rules_.expr(id);
    if (expr.kind == ExprKind::kAutomaton) {
      completable_[id] = CompletableStates(rules_.automaton(expr));
      productive_[id] = completable_[id][0];
    }
  }
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (ExprId id = 0; id < rules_.num_exprs(); ++id) {
      if (!productive_[id] && IsProductive(rules_.expr(id))) productive_[id] = is_changed = true;
    }
  }
}

// By what is known so far.
bool GrammarReference::IsProductive(const Expr& expr) const {
  const auto is_productive = [&](ExprId part) { return productive_[part]; };
  switch (expr.kind) {
    case ExprKind::kEmpty:
    case ExprKind::kLiteral:
      return true;
    case ExprKind::kNever:
    case ExprKind::kAutomaton:  // FindProductive has decided it
      return false;
    case ExprKind::kBytes:
      return !rules_.bytes(expr).IsEmpty();
    case ExprKind::kChars:
      return !rules_.chars(expr).ranges().empty();
    case ExprKind::kSequence:
      return std::all_of(expr.parts.begin(), expr.parts.end(), is_productive);
    case ExprKind::kAnyOf:
      return std::any_of(expr.parts.begin(), expr.parts.end(), is_productive);
    case ExprKind::kRepeat:
      return expr.min == 0 || is_productive(expr.parts[0]);
    case ExprKind::kMembers:
      return MembersCanEnd(expr, {});
    case ExprKind::kCall:
      return rules_.IsDefined(expr.payload) && is_productive(rules_.body(expr.payload));
  }
  return false;
}

std::vector<bool> GrammarReference::CompletableStates(const ByteDfa& dfa) const {
  std::vector<bool> completable(std::max<size_t>(dfa.states.size(), 1), false);
  for (size_t i = 0; i < dfa.states.size(); ++i) completable[i] = dfa.states[i].accepting;
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (size_t i = 0; i < dfa.states.size(); ++i) {
      if (completable[i]) continue;
      for (const ByteDfa::Edge& edge : dfa.states[i].edges) {
        if (completable[edge.target]) completable[i] = is_changed = true;
      }
    }
  }
  return completable;
}

bool GrammarReference::IsComplete(const Item& item) const {
  const Expr& expr = rules_.expr(item.expr);
  switch (expr.kind) {
    case ExprKind::kEmpty:
      return true;
    case ExprKind::kNever:
      return false;
    case ExprKind::kBytes:
    case ExprKind::kChars:
      return item.state == kRead;
    case ExprKind::kLiteral:
      return item.state == rules_.literal(expr).size();
    case ExprKind::kSequence:
      return item.state == expr.parts.size();
    case ExprKind::kAnyOf:
    case ExprKind::kCall:
      return item.state == 1;
    case ExprKind::kRepeat:
      return item.state >= expr.min;
    case ExprKind::kMembers:
      return MembersMayEnd(expr, MembersState::Of(item.state));
    case ExprKind::kAutomaton:
      return rules_.automaton(expr).states[item.state].accepting;
  }
  return false;
}

std::vector<ExprId> GrammarReference::Awaited(const Item& item) const {
  const Expr& expr = rules_.expr(item.expr);
  std::vector<ExprId> awaited;
  switch (expr.kind) {
    case ExprKind::kSequence:
      if (item.state < expr.parts.size()) awaited = {expr.parts[item.state]};
      break;
    case ExprKind::kAnyOf:
      if (item.state == 0) awaited.assign(expr.parts.begin(), expr.parts.end());
      break;
    case ExprKind::kRepeat:
      if (expr.max == kUnbounded || item.state < expr.max) awaited = {expr.parts[0]};
      break;
    case ExprKind::kCall:
      if (item.state == 0) awaited = {rules_.body(expr.payload)};
      break;
    case ExprKind::kMembers:
      for (const auto& [part, next] : MembersSteps(expr, MembersState::Of(item.state))) {
        awaited.push_back(part);
      }
      break;
    default:
      break;
  }
  std::erase_if(awaited, [&](ExprId part) { return !productive_[part]; });
  return awaited;
}

bool GrammarReference::MembersMayEnd(const Expr& expr, MembersState at) const {
  const Members& members = rules_.members(expr);
  bool is_any_required = false;
  for (uint32_t key = 0; key < members.keys.size(); ++key) {
    const bool is_left = members.any_order ? (at.key >> key & 1) == 0 : key >= at.key;
    is_any_required |= is_left && members.keys[key].is_required;
  }
  return at.is_after_member && !is_any_required && at.written >= members.min &&
         (at.is_met || !members.has_need);
}

bool GrammarReference::MembersCanEnd(const Expr& expr, MembersState at) const {
  std::vector<MembersState> open = {at};
  std::set<uint32_t> seen = {at.number()};
  for (size_t i = 0; i < open.size(); ++i) {
    if (MembersMayEnd(expr, open[i])) return true;
    for (const auto& [part, next] : AnyMembersSteps(expr, open[i])) {
      if (seen.insert(next.number()).second) open.push_back(next);
    }
  }
  return false;
}

std::vector<GrammarReference::MembersStep> GrammarReference::MembersSteps(const Expr& expr,
                                                                          MembersState at) const {
  std::vector<MembersStep> steps = AnyMembersSteps(expr, at);
  std::erase_if(steps, [&](const MembersStep& step) { return !MembersCanEnd(expr, step.second); });
  return steps;
}

std::vector<GrammarReference::MembersStep> GrammarReference::AnyMembersSteps(
    const Expr& expr, MembersState at) const {
  const Members& members = rules_.members(expr);
  const auto num_keys = static_cast<uint32_t>(members.keys.size());
  const uint32_t counted = members.max == kUnbounded ? members.min : members.max;
  std::vector<MembersStep> steps;
  const auto add = [&](ExprId part, MembersState next) {
    if (productive_[part]) steps.emplace_back(part, next);
  };
  if (members.max != kUnbounded && at.written >= members.max) return steps;
  // One of the others has met the need.
  if (members.any_order ? (at.key & MembersState::kClosed) != 0 : at.key > num_keys) return steps;
  if (at.is_after_member) {
    add(expr.parts[num_keys], {false, at.key, at.written, at.is_met});
    return steps;
  }
  const uint32_t written = std::min(at.written + 1, counted);
  // The parts are listed a second time for the need.
  const auto add_member = [&](uint32_t part, uint32_t key) {
    add(expr.parts[part], {true, key, written, at.is_met});
    if (members.has_need && !at.is_met) {
      const bool is_other = part == num_keys + 1;
      const uint32_t needed = num_keys + 2 + (is_other ? num_keys : part);
      const uint32_t last = members.any_order ? key | MembersState::kClosed : key + 1;
      add(expr.parts[needed], {true, is_other ? last : key, written, true});
    }
  };
  if (members.any_order) {
    for (uint32_t key = 0; key < num_keys; ++key) {
      const uint32_t bit = 1U << key;
      if ((at.key & bit) == 0) add_member(key, at.key | bit);
    }
    add_member(num_keys + 1, at.key);
    return steps;
  }
  for (uint32_t key = at.key; key < num_keys; ++key) {
    add_member(key, key + 1);
    if (members.keys[key].is_required) return steps;
  }
  add_member(num_keys + 1, num_keys);
  return steps;
}

std::vector<GrammarReference::Item> GrammarReference::Advance(const Item& item, ExprId part) const {
  const Expr& expr = rules_.expr(item.expr);
  if (expr.kind == ExprKind::kMembers) {
    std::vector<Item> items;
    for (const auto& [step, next] : MembersSteps(expr, MembersState::Of(item.state))) {
      if (step == part) items.push_back({item.expr, next.number(), item.origin});
    }
    return items;
  }
  // Without a bound, every count from `min` on allows the same.
  const bool is_counted = expr.kind != ExprKind::kRepeat || expr.max != kUnbounded;
  const bool is_next = is_counted || item.state < expr.min;
  return {{item.expr, item.state + (is_next ? 1 : 0), item.origin}};
}

void GrammarReference::Scan(const Item& item, uint8_t byte, ItemSet* next) const {
  const Expr& expr = rules_.expr(item.expr);
  switch (expr.kind) {
    case ExprKind::kBytes:
      if (item.state == 0 && rules_.bytes(expr).Has(byte)) {
        next->Add({item.expr, kRead, item.origin});
      }
      break;
    case ExprKind::kChars: {  // the state: the bytes of a character that have come
      if (item.state == kRead) break;
      const uint32_t packed = item.state << 8 | byte;
      const Utf8Prefix prefix = ReadUtf8(packed);
      if (!prefix.is_valid || !HasAnyOf(rules_.chars(expr), prefix.code_points)) break;
      next->Add({item.expr, prefix.is_complete ? kRead : packed, item.origin});
      break;
    }
    case ExprKind::kLiteral: {
      const std::string& literal = rules_.literal(expr);
      if (item.state < literal.size() && static_cast<uint8_t>(literal[item.state]) == byte) {
        next->Add({item.expr, item.state + 1, item.origin});
      }
      break;
    }
    case ExprKind::kAutomaton:
      for (const ByteDfa::Edge& edge : rules_.automaton(expr).states[item.state].edges) {
        if (edge.first <= byte && byte <= edge.last && completable_.at(item.expr)[edge.target]) {
          next->Add({item.expr, edge.target, item.origin});
        }
      }
      break;
    default:
      break;
  }
}

// Adds what follows from the items of sets[offset] without another byte.
void GrammarReference::Close(uint32_t offset, std::vector<ItemSet>* sets) const {
  ItemSet& here = (*sets)[offset];
  for (size_t i = 0; i < here.items.size(); ++i) {
    const Item item = here.items[i];
    for (const ExprId part : Awaited(item)) {
      here.waiting[part].push_back(item);
      here.Add({part, 0, offset});
      // The part has been completed here without a byte, before this item waited for it.
      if (here.empty_here.contains(part)) {
        for (const Item& next : Advance(item, part)) here.Add(next);
      }
    }
    if (!IsComplete(item)) continue;
    if (item.origin == offset) here.empty_here.insert(item.expr);
    const std::vector<Item> waiting = (*sets)[item.origin].waiting[item.expr];
    for (const Item& parent : waiting) {
      for (const Item& next : Advance(parent, item.expr)) here.Add(next);
    }
  }
}

std::vector<GrammarReference::ItemSet> GrammarReference::Run(std::string_view text) const {
  std::vector<ItemSet> sets(1);
  if (!productive_[root_]) return {};
  sets[0].Add({root_, 0, 0});
  Close(0, &sets);
  for (size_t offset = 0; offset < text.size(); ++offset) {
    sets.emplace_back();
    for (const Item& item : sets[offset].items) {
      Scan(item, static_cast<uint8_t>(text[offset]), &sets.back());
    }
    if (sets.back().items.empty()) {
      sets.pop_back();
      break;
    }
    Close(static_cast<uint32_t>(offset + 1), &sets);
  }
  return sets;
}

bool GrammarReference::Accepts(std::string_view text) const {
  const std::vector<ItemSet> sets = Run(text);
  if (sets.size() != text.size() + 1) return false;
  return std::any_of(sets.back().items.begin(), sets.back().items.end(), [&](const Item& item) {
    return item.expr == root_ && item.origin == 0 && IsComplete(item);
  });
}

bool GrammarReference::IsPrefix(std::string_view text) const {
  return Run(text).size() == text.size() + 1;
}

}  // namespace specd::grammar
