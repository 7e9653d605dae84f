// FrameRule is a rule whose texts are counted while they are met: a counted repetition, or the
// members of an object.
//
// Such a rule has no automaton of its own. A LazyAutomaton keeps a frame of two numbers on its
// stack (frame_numbers.h), so a million repetitions and five thousand properties take no more
// states than a few do. BuildNfa finds the expressions that become such rules, and lists them in
// ExtraRules. A frame rule never has the empty text. Plain data.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

// Keys of one set. A set of 2 KiB for each state of the largest mask (mask_builder.h) is 32 MiB.
inline constexpr size_t kSetKeysMax = 16384;

struct FrameRule {
  enum class Kind : uint8_t { kNone, kCount, kMembers };

  struct Key {
    std::string_view text;   // a literal of the GrammarRules
    RuleId value = kNoRule;  // kNoRule: no text is left of it, or keys have no values
    bool is_required = false;
    RuleId needed_value = kNoRule;  // kNoRule: none meets the need
    bool is_spelled = true;         // false: a byte of it is left out
  };

  Kind kind = Kind::kNone;
  uint32_t min = 0;  // of the repetitions, or of the members
  uint32_t max = kUnbounded;
  RuleId part = kNoRule;  // kCount: the rule that is repeated
  List<Key> keys = {};    // kMembers, in their order; in any order by their texts
  bool any_order = false;
  bool has_values = true;
  RuleId separator = kNoRule;
  RuleId other = kNoRule;  // kNoRule: there are no others
  bool has_need = false;
  RuleId needed_other = kNoRule;

  template <typename Visit>
  void ForEachCallee(const Visit& visit) {
    for (RuleId* callee : {&part, &separator, &other, &needed_other}) {
      if (*callee != kNoRule) visit(callee);
    }
    for (Key& key : keys) {
      if (key.value != kNoRule) visit(&key.value);
      if (key.needed_value != kNoRule) visit(&key.needed_value);
    }
  }
};

// The rules that expressions need beside those of their GrammarRules, whose numbers they continue:
// bodies of parts, and frame rules. Building one may add further ones.
class ExtraRules {
 public:
  struct Rule {
    ExprId body = 0;  // unless it is a frame rule
    FrameRule frame = {};
  };

  explicit ExtraRules(const GrammarRules& rules) : rules_(rules) {}

  RuleId OfPart(ExprId part) { return Number({part, {0, 0}}, {.body = part}); }
  // The part, min to max times. REQUIRES: 1 <= min.
  RuleId OfCount(ExprId part, uint32_t min, uint32_t max);
  // REQUIRES: the expression is of the kind kMembers.
  RuleId OfMembers(ExprId expr);

  const List<Rule>& rules() const { return extra_; }

 private:
  // The expression, and its counts: 0 and 0 for the body of a part, 0 and 1 for members.
  using Key = std::pair<ExprId, std::pair<uint32_t, uint32_t>>;

  RuleId Number(const Key& key, Rule rule);

  const GrammarRules& rules_;
  List<Rule> extra_;
  HashMap<Key, RuleId> numbers_;
};

}  // namespace specd::grammar
