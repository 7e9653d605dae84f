#include "tests/fuzz/judge/drawn_constraint.h"

#include "tests/fuzz/judge/dice.h"
#include "tests/fuzz/judge/drawn_pattern.h"
#include "tests/fuzz/judge/drawn_schema.h"
#include "tests/fuzz/judge/json_print.h"

namespace specd::grammar {

GrammarRequest DrawConstraint(GrammarKind kind, uint64_t seed) {
  constexpr GrammarKind kKinds[] = {GrammarKind::kJsonSchema, GrammarKind::kJsonSchema,
                                    GrammarKind::kJsonSchema, GrammarKind::kRegex,
                                    GrammarKind::kEbnf};
  Dice dice(seed);
  const GrammarKind drawn = dice.Pick(kKinds);
  GrammarRequest request;
  request.kind = kind == GrammarKind::kNone ? drawn : kind;
  request.whitespace = dice.OneIn(2) ? Whitespace::kCompact : Whitespace::kFlexible;
  request.lenient = dice.OneIn(2);
  switch (request.kind) {
    case GrammarKind::kRegex:
      request.text = DrawPattern(&dice);
      break;
    case GrammarKind::kEbnf:
      request.text = DrawEbnf(&dice);
      break;
    default:
      request.text = PrintJson(DrawSchema(&dice));
      request.key_order = dice.OneIn(2) ? KeyOrder::kAny : KeyOrder::kSchema;
  }
  return request;
}

}  // namespace specd::grammar
