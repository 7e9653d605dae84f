// GrammarRules is the form that every front end compiles a constraint to: named rules whose bodies
// are expressions over bytes, characters and other rules.
//
// A front end (regex, EBNF, JSON Schema, choice, structural tag) makes expressions bottom up and
// defines rules with them. Expressions are immutable, belong to their GrammarRules, and may be used
// in several places. Equal expressions have one id. Rules may call each other
// and themselves, in any position. NetworkBuilder (network.h) turns the finished rules into an
// automaton.
//
//   GrammarRules rules;
//   const RuleId list = rules.AddRule("list");
//   const ExprId item = rules.Literal("x");
//   rules.Define(list, rules.Sequence({item, rules.Optional(rules.Call(list))}));
//   rules.SetRoot(list);
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/byte_set.h"
#include "speculative/grammar/base/char_set.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/id_table.h"

namespace specd::grammar {

using ExprId = uint32_t;
using RuleId = uint32_t;

inline constexpr RuleId kNoRule = ~RuleId{0};
// The `max` of a repetition without a bound.
inline constexpr uint32_t kUnbounded = ~uint32_t{0};

enum class ExprKind : uint8_t {
  kEmpty,      // the empty text
  kNever,      // no text
  kBytes,      // one byte of a ByteSet
  kChars,      // one character of a CharSet, as UTF-8
  kLiteral,    // these bytes
  kSequence,   // the parts one after another
  kAnyOf,      // one of the parts
  kRepeat,     // the part, min to max times
  kCall,       // a rule
  kAutomaton,  // a text that a ByteDfa accepts
  kMembers,    // members of an object, one or more
};

struct Expr {
  ExprKind kind = ExprKind::kEmpty;
  uint32_t min = 0;      // kRepeat
  uint32_t max = 0;      // kRepeat; kUnbounded: no bound
  uint32_t payload = 0;  // an index into the table of the kind; kCall: the rule
  // kSequence, kAnyOf, kRepeat (one); kMembers: each key with its value, the separator, others, and
  // with a need each key and others again, as they meet it
  List<ExprId> parts = {};
};

// The members of an object: declared ones in their order, then any others, with a separator between
// two. In any order, others may come between the declared ones too. A free member's name may occur
// twice, so at most one of the others is sure to be new. With a need, at least one member is
// written with a value, or as another, that meets it; that other comes last, because a later one
// might have its name. The items of an array that are all different are members too: keys without
// values.
struct Members {
  struct Key {
    std::string text;  // the name as it is written, with its quotes
    ExprId value = 0;  // what stands after it, with the colon; Empty if no key has one
    bool is_required = false;
    ExprId needed_value = 1;  // of the values those that meet the need; Never if none does

    friend bool operator==(const Key&, const Key&) = default;
  };
  List<Key> keys = {};
  bool any_order = false;
  bool has_values = true;
  ExprId separator = 0;
  ExprId other = 1;  // a further member; Never if there is none
  bool has_need = false;
  ExprId needed_other = 1;  // of the others those that meet the need
  uint32_t min = 1;         // members
  uint32_t max = kUnbounded;

  friend bool operator==(const Members&, const Members&) = default;
};

class GrammarRules {
 public:
  GrammarRules();

  ExprId Empty() const { return kEmptyExpr; }
  ExprId Never() const { return kNeverExpr; }
  ExprId Bytes(const ByteSet& set);
  ExprId Chars(const CharSet& set);
  ExprId Literal(std::string_view bytes);
  // Nested sequences and alternatives are flattened; Empty and Never are simplified away.
  ExprId Sequence(std::span<const ExprId> parts);
  ExprId Sequence(std::initializer_list<ExprId> parts) {
    return Sequence(std::span(parts.begin(), parts.size()));
  }
  ExprId AnyOf(std::span<const ExprId> parts);
  ExprId AnyOf(std::initializer_list<ExprId> parts) {
    return AnyOf(std::span(parts.begin(), parts.size()));
  }
  // REQUIRES: min <= max.
  ExprId Repeat(ExprId part, uint32_t min, uint32_t max);
  ExprId Optional(ExprId part) { return Repeat(part, 0, 1); }
  ExprId Star(ExprId part) { return Repeat(part, 0, kUnbounded); }
  ExprId Plus(ExprId part) { return Repeat(part, 1, kUnbounded); }
  ExprId Call(RuleId rule);
  ExprId Automaton(ByteDfa dfa);
  // One member or more. REQUIRES: no text of a key is empty or twice there, and none begins
  // another's in an order; with values, no value and no other has the empty text. With others, at
  // least members.min - 1 keys are required; with a need, there is no maximum. Without values, keys
  // come in any order, and there are no others and no need.
  ExprId MembersOf(Members members);

  // A rule may be called before it is defined. The name is for error messages only.
  RuleId AddRule(std::string name);
  void Define(RuleId rule, ExprId body);
  bool IsDefined(RuleId rule) const { return rules_[rule].is_defined; }
  void SetRoot(RuleId rule) { root_ = rule; }

  RuleId root() const { return root_; }
  size_t num_rules() const { return rules_.size(); }
  size_t num_exprs() const { return exprs_.size(); }
  const std::string& name(RuleId rule) const { return rules_[rule].name; }
  ExprId body(RuleId rule) const { return rules_[rule].body; }
  const Expr& expr(ExprId id) const { return exprs_[id]; }
  const ByteSet& bytes(const Expr& expr) const { return byte_sets_[expr.payload]; }
  const CharSet& chars(const Expr& expr) const { return char_sets_[expr.payload]; }
  const std::string& literal(const Expr& expr) const { return literals_[expr.payload]; }
  const ByteDfa& automaton(const Expr& expr) const { return automata_[expr.payload]; }
  const Members& members(const Expr& expr) const { return members_[expr.payload]; }

 private:
  static constexpr ExprId kEmptyExpr = 0;
  static constexpr ExprId kNeverExpr = 1;

  struct Rule {
    std::string name;
    ExprId body = kNeverExpr;
    bool is_defined = false;
  };

  // The id of the expression, whose payload is its content: `has_content` looks whether another has
  // the same, and `add_content` makes the payload of a new one.
  ExprId Intern(uint64_t content, Expr expr, absl::FunctionRef<bool(const Expr&)> has_content,
                absl::FunctionRef<uint32_t()> add_content);
  ExprId Intern(Expr expr);
  // Makes an automaton of many literals: texts that begin or end alike share its states.
  void JoinLiterals(List<ExprId>* parts);
  // The payload is the index of the content in `contents`.
  template <typename Content, typename Contents>
  ExprId InternIn(Expr expr, uint64_t hash, Content&& content, Contents* contents);

  List<Expr> exprs_;
  IdTable numbers_;  // of exprs_, except Empty and Never
  List<Rule> rules_;
  RuleId root_ = kNoRule;
  List<ByteSet> byte_sets_;
  List<CharSet> char_sets_;
  std::vector<std::string> literals_;
  List<ByteDfa> automata_;
  List<Members> members_;
};

}  // namespace specd::grammar
