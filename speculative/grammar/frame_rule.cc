#include "speculative/grammar/frame_rule.h"

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
  FrameRule frame = {.kind = FrameRule::Kind::kMembers, .min = members.min, .max = members.max};
  for (const Members::Key& key : members.keys) {
    frame.keys.push_back({key.text, OfPart(key.value), key.is_required});
  }
  frame.separator = OfPart(members.separator);
  if (members.other != rules_.Never()) frame.other = OfPart(members.other);
  return Number({expr, {0, 0}}, {.frame = std::move(frame)});
}

}  // namespace specd::grammar
