#include "speculative/grammar/rules/frame_rule.h"

#include "kernels/core/check.h"

namespace specd::grammar {

RuleId ExtraRules::Number(const Key& key, Rule rule) {
  const auto next = static_cast<RuleId>(rules_.num_rules() + extra_.size());
  const auto [known, is_new] = numbers_.try_emplace(key, next);
  if (is_new) extra_.push_back(std::move(rule));
  return known->second;
}

RuleId ExtraRules::OfCount(ExprId part, uint32_t min, uint32_t max) {
  SPECD_CHECK(min > 0 && min <= max);
  FrameRule frame = {.kind = FrameRule::Kind::kCount, .min = min, .max = max, .part = OfPart(part)};
  return Number({part, {min, max}}, {.frame = std::move(frame)});
}

RuleId ExtraRules::OfMembers(ExprId expr) {
  const Members& members = rules_.members(rules_.expr(expr));
  FrameRule frame = {.kind = FrameRule::Kind::kMembers,
                     .min = members.min,
                     .max = members.max,
                     .any_order = members.any_order,
                     .has_values = members.has_values};
  for (const Members::Key& key : members.keys) {
    const bool is_needed = members.has_need && key.needed_value != rules_.Never();
    frame.keys.push_back({.text = key.text,
                          .value = members.has_values ? OfPart(key.value) : kNoRule,
                          .is_required = key.is_required,
                          .needed_value = is_needed ? OfPart(key.needed_value) : kNoRule});
  }
  frame.separator = OfPart(members.separator);
  if (members.other != rules_.Never()) frame.other = OfPart(members.other);
  frame.has_need = members.has_need;
  if (members.has_need && members.needed_other != rules_.Never()) {
    frame.needed_other = OfPart(members.needed_other);
  }
  return Number({expr, {0, 1}}, {.frame = std::move(frame)});
}

}  // namespace specd::grammar
