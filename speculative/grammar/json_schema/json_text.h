// JsonText builds the expressions of JSON's own grammar (RFC 8259): strings, numbers, any value.
//
// Whitespace goes between tokens and never around the whole. Rules are made once, when a caller
// first asks, and are shared after that.
//
//   JsonText text(Whitespace::kFlexible, &rules);
//   rules.Sequence({text.Open('['), text.Value(), text.Close(']')});
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/grammar_request.h"
#include "speculative/grammar/base/json_value.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

// `text` in quotes, in one spelling: an escape only where JSON asks for one, and the short one.
std::string QuoteJson(std::string_view text);

// The number `text` in one spelling: plain digits where they are few.
std::string CanonicalNumber(std::string_view text);

// The strings of `values` as QuoteJson writes them, without the quotes. If `values` is minimal, the
// result is nearly so.
ByteDfa EscapeStrings(const ByteDfa& values);

// 1.0 is the integer 1. A model that has begun zeros cannot go on with them for ever.
inline constexpr uint32_t kZeroDigitsMax = 3;

class JsonText {
 public:
  JsonText(Whitespace whitespace, GrammarRules* rules) : whitespace_(whitespace), rules_(*rules) {}

  ExprId Space();
  // A bracket with the space inside it, a comma with the space around it, `"name" :`.
  ExprId Open(char bracket);
  ExprId Close(char bracket);
  ExprId Comma();
  ExprId Colon();

  // Any value of the type.
  ExprId Null() { return rules_.Literal("null"); }
  ExprId Boolean();
  ExprId Number();
  ExprId Integer();
  // Nothing, or a fraction of at most kZeroDigitsMax zeros: what a whole number may end with.
  ExprId ZeroFraction();
  ExprId String();
  ExprId Array();
  ExprId Object();
  ExprId Value();

  // Strings of min to max characters, in any spelling. An escaped pair of surrogates is one.
  ExprId String(uint32_t min, uint32_t max);
  // The strings of `values`, as QuoteJson writes them.
  ExprId String(const ByteDfa& values);
  // One value: names and strings in one spelling, with space where JSON allows it.
  ExprId Constant(const JsonValue& value);

 private:
  ExprId Digits(uint32_t min, uint32_t max);
  ExprId Character();
  // A rule that is called `name`, whose text is `body`.
  ExprId Rule(std::string_view name, ExprId body);
  void BuildValue();

  static constexpr ExprId kNotBuilt = ~ExprId{0};

  const Whitespace whitespace_;
  GrammarRules& rules_;
  ExprId space_ = kNotBuilt;
  ExprId comma_ = kNotBuilt;
  ExprId number_ = kNotBuilt;
  ExprId integer_ = kNotBuilt;
  ExprId zero_fraction_ = kNotBuilt;
  ExprId character_ = kNotBuilt;
  ExprId string_ = kNotBuilt;
  ExprId array_ = kNotBuilt;
  ExprId object_ = kNotBuilt;
  ExprId value_ = kNotBuilt;
};

}  // namespace specd::grammar
