#include "speculative/grammar/json_schema/array_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "speculative/grammar/json_schema/unique_items.h"

namespace specd::grammar {
namespace {

// Numbers of items, and of those that satisfy the schema of `contains`, are told apart up to here.
uint64_t CountedItems(const ArraySchema& array) {
  return std::max<uint64_t>({1, array.prefix.size(), array.contained[0].from, array.min_items,
                             array.max_items == kUnbounded ? 0 : array.max_items});
}
uint64_t CountedMatches(const ArraySchema& array) {
  const ContainedItems& contained = array.contained[0];
  return contained.max != kUnbounded ? contained.max : contained.min;
}

uint32_t MostItems(const ArraySchema& array) {
  const uint32_t num_prefix = array.prefix.size();
  return IsNothing(array.rest) ? std::min(array.max_items, num_prefix) : array.max_items;
}

}  // namespace

absl::StatusOr<ExprId> ArrayBuilder::Build(const SchemaSet& set, const ArraySchema& array) {
  if (array.IsUnconstrained()) return text_.Array();
  List<UnofferedKeyword> unoffered;
  const JsonValue* unique = nullptr;
  for (const UnofferedKeyword& one : array.unoffered) {
    if (one.keyword == "uniqueItems") {
      unique = one.schema;
    } else {
      unoffered.push_back(one);
    }
  }
  if (absl::Status status = RefuseUnoffered(unoffered, &report_); !status.ok()) return status;
  if (unique != nullptr && MostItems(array) > 1) {
    const absl::StatusOr<std::optional<List<std::string>>> items = DifferentItems(*unique, array);
    if (!items.ok()) return items.status();
    if (items->has_value()) return BuildDifferent(**items, array);
  }
  if (!array.contained.empty()) {
    const absl::StatusOr<bool> is_counted = CountsContained(set, array);
    if (!is_counted.ok()) return is_counted.status();
    if (*is_counted) {
      const absl::StatusOr<ExprId> counted = BuildContaining(set, array);
      if (!counted.ok()) return counted;
      return rules_.Sequence({text_.Open('['), *counted, rules_.Literal("]")});
    }
  }
  List<ExprId> items;
  for (size_t i = 0; i < std::max<size_t>(array.prefix.size(), 1); ++i) {
    if (i > 0 && i >= array.max_items) break;
    const absl::StatusOr<ExprId> item = expr_for_(array.Item(i));
    if (!item.ok()) return item;
    items.push_back(*item);
  }
  const uint32_t num_items = items.size();
  ExprId tail = rules_.Empty();
  if (num_items < array.max_items) {
    const absl::StatusOr<ExprId> rest = expr_for_(array.rest);
    if (!rest.ok()) return rest;
    const uint32_t min = array.min_items > num_items ? array.min_items - num_items : 0;
    const uint32_t max = array.max_items == kUnbounded ? kUnbounded : array.max_items - num_items;
    tail = rules_.Repeat(rules_.Sequence({text_.Comma(), *rest}), min, max);
  }
  // Deeper nesting becomes rules, so that no expression is deep.
  constexpr uint32_t kInlineItemsMax = 16;
  for (uint32_t i = num_items; i-- > 1;) {
    const ExprId from_here = rules_.Sequence({text_.Comma(), items[i], tail});
    if (i < array.min_items) {
      tail = from_here;
      continue;
    }
    tail = rules_.Optional(from_here);
    if (num_items > kInlineItemsMax && tail != rules_.Empty()) {
      const RuleId rule = rules_.AddRule(fmt::format("{} from {}", PointerOf(PlaceOf(set)), i));
      rules_.Define(rule, tail);
      tail = rules_.Call(rule);
    }
  }
  ExprId body = rules_.Never();
  if (array.max_items > 0) body = rules_.Sequence({items[0], tail, text_.Space()});
  return Whole(body, array);
}

absl::StatusOr<bool> ArrayBuilder::CountsContained(const SchemaSet& set, const ArraySchema& array) {
  constexpr uint64_t kNodesMax = 4096;
  const std::string_view why = array.contained.size() > 1 ? "more than one schema would be counted"
                               : (CountedItems(array) + 1) * (CountedMatches(array) + 1) > kNodesMax
                                   ? "its numbers of items are too large"
                                   : "";
  if (why.empty()) return true;
  const absl::Status status = report_.Refuse(PlaceOf(set), "contains", why);
  return status.ok() ? absl::StatusOr<bool>(false) : status;
}

absl::StatusOr<ExprId> ArrayBuilder::BuildContaining(const SchemaSet& set,
                                                     const ArraySchema& array) {
  const ContainedItems& contained = array.contained[0];
  const bool has_most = contained.max != kUnbounded;
  const uint64_t items_max = CountedItems(array);
  const uint64_t found_max = CountedMatches(array);
  // The last rules come first, so that none is called before it is there; the loops are at the end.
  const auto index = [&](uint64_t items, uint64_t found) {
    return static_cast<size_t>(items * (found_max + 1) + found);
  };
  List<RuleId> rules((items_max + 1) * (found_max + 1));
  for (RuleId& rule : rules) rule = rules_.AddRule(PointerOf(PlaceOf(set)) + " items");
  for (uint64_t items = 0; items <= items_max; ++items) {
    const SchemaSet& any = array.Item(items);
    const absl::StatusOr<ExprId> match = expr_for_(UniteSets(any, contained.schemas));
    if (!match.ok()) return match;
    // With a least number alone, an item that satisfies the schema need not be counted.
    List<SchemaSet> misses = {any};
    if (has_most && items >= contained.from) {
      misses.clear();
      for (const SchemaSet& opposite : Opposites(contained.schemas)) {
        misses.push_back(UniteSets(any, opposite));
      }
    }
    List<ExprId> miss;
    for (const SchemaSet& one : misses) {
      const absl::StatusOr<ExprId> expr = expr_for_(one);
      if (!expr.ok()) return expr;
      miss.push_back(*expr);
    }
    for (uint64_t found = 0; found <= found_max; ++found) {
      List<ExprId> ways;
      const auto add = [&](ExprId item, uint64_t next_found) {
        const ExprId rest = rules_.Call(rules[index(std::min(items + 1, items_max), next_found)]);
        const ExprId comma = items == 0 ? rules_.Empty() : text_.Comma();
        ways.push_back(rules_.Sequence({comma, item, rest}));
      };
      if (items < array.max_items) {
        for (const ExprId one : miss) add(one, found);
        const bool counts = items >= contained.from && found < found_max;
        if (counts) add(*match, found + 1);
      }
      const bool may_end = items >= array.min_items && found >= contained.min;
      if (may_end) ways.push_back(items == 0 ? rules_.Empty() : text_.Space());
      rules_.Define(rules[index(items, found)], rules_.AnyOf(ways));
    }
  }
  return rules_.Call(rules[0]);
}

absl::StatusOr<std::optional<List<std::string>>> ArrayBuilder::DifferentItems(
    const JsonValue& place, const ArraySchema& array) {
  using Texts = std::optional<List<std::string>>;
  std::string_view why;
  Texts texts;
  // All places have the same values, or it would matter which place has which.
  const size_t num_places = std::min<size_t>(MostItems(array), array.prefix.size() + 1);
  for (size_t i = 0; i < num_places && why.empty(); ++i) {
    absl::StatusOr<Texts> values = FiniteItems(array.Item(i), &evaluator_);
    if (!values.ok()) return values.status();
    if (!values->has_value()) {
      why = "its items are not of a finite list of scalars, and a grammar remembers no others";
    } else if (i > 0 && **values != *texts) {
      why = "items at different places have different values";
    }
    texts = *std::move(values);
  }
  if (!array.contained.empty()) why = "it stands beside contains";
  if (why.empty()) return texts;
  const absl::Status status = report_.Refuse(place, "uniqueItems", why);
  if (!status.ok()) return status;
  return Texts();
}

ExprId ArrayBuilder::BuildDifferent(const List<std::string>& texts, const ArraySchema& array) {
  Members members = {.any_order = true,
                     .has_values = false,
                     .separator = text_.Comma(),
                     .min = std::max<uint32_t>(array.min_items, 1),
                     .max = MostItems(array)};
  for (const std::string& text : texts) {
    members.keys.push_back({.text = text, .value = rules_.Empty()});
  }
  ExprId body = rules_.Never();
  if (members.min <= std::min<size_t>(members.max, texts.size())) {
    body = rules_.Sequence({rules_.MembersOf(std::move(members)), text_.Space()});
  }
  return Whole(body, array);
}

ExprId ArrayBuilder::Whole(ExprId items, const ArraySchema& array) {
  if (array.min_items == 0) items = rules_.Optional(items);
  return rules_.Sequence({text_.Open('['), items, rules_.Literal("]")});
}

}  // namespace specd::grammar
