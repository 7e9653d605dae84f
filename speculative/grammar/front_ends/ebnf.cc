#include "speculative/grammar/front_ends/ebnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/base/utf8_text.h"
#include "speculative/grammar/front_ends/ebnf_lexer.h"

namespace specd::grammar {
namespace {

constexpr std::array<std::string_view, 5> kMacros = {"TagDispatch", "Token", "ExcludeToken",
                                                     "TokenTagDispatch", "Regex"};

// A name for an error.
std::string_view Shown(std::string_view name) {
  constexpr size_t kShownMax = 60;
  return name.size() <= kShownMax ? name : "(a long name)";
}

class EbnfParser {
 public:
  EbnfParser(std::string_view text, GrammarRules* rules) : lexer_(text), rules_(rules) {}

  absl::StatusOr<ExprId> Parse(const std::string& root);

 private:
  struct NamedRule {
    std::string_view name;
    size_t offset = 0;  // of its first mention
    RuleId rule = kNoRule;
  };

  absl::Status Advance();
  absl::Status ParseRule();
  absl::StatusOr<ExprId> ParseAlternatives(int depth);
  absl::StatusOr<ExprId> ParseSequence(int depth);
  absl::StatusOr<ExprId> ParseItem(int depth);
  absl::StatusOr<ExprId> ParseGroup(int depth);
  absl::StatusOr<ExprId> ParseRepeats(ExprId item);
  absl::StatusOr<ExprId> ParseCall();
  absl::Status CheckMacro() const;
  absl::Status CheckAttribute(const EbnfToken& token) const;
  absl::Status UnexpectedToken() const;
  RuleId RuleOf(const EbnfToken& name);

  // The next rule begins here.
  bool IsRuleHead() const {
    return token_.kind == EbnfTokenKind::kName && next_.kind == EbnfTokenKind::kAssign;
  }

  EbnfLexer lexer_;
  GrammarRules* const rules_;
  EbnfToken token_;
  EbnfToken next_;
  HashMap<std::string_view, size_t> index_of_;  // in named_
  List<NamedRule> named_;
};

absl::Status EbnfParser::Advance() {
  absl::StatusOr<EbnfToken> next = lexer_.Next();
  if (!next.ok()) return next.status();
  token_ = std::exchange(next_, *std::move(next));
  return absl::OkStatus();
}

RuleId EbnfParser::RuleOf(const EbnfToken& name) {
  const auto [entry, is_new] = index_of_.try_emplace(name.source, named_.size());
  if (is_new) {
    named_.push_back({.name = name.source,
                      .offset = name.offset,
                      .rule = rules_->AddRule(std::string(name.source))});
  }
  return named_[entry->second].rule;
}

absl::StatusOr<ExprId> EbnfParser::Parse(const std::string& root) {
  for (int i = 0; i < 2; ++i) {
    if (absl::Status status = Advance(); !status.ok()) return status;
  }
  if (token_.kind == EbnfTokenKind::kEnd) {
    return lexer_.Invalid(token_.offset,
                          fmt::format("the grammar has no rule; write {} ::= body", Shown(root)));
  }
  while (token_.kind != EbnfTokenKind::kEnd) {
    if (absl::Status status = ParseRule(); !status.ok()) return status;
  }
  for (const NamedRule& named : named_) {
    if (rules_->IsDefined(named.rule)) continue;
    return lexer_.Invalid(
        named.offset,
        fmt::format("no rule is named {}; define it, or correct the name", Shown(named.name)));
  }
  const auto entry = index_of_.find(root);
  if (entry == index_of_.end()) {
    return lexer_.Invalid(
        0, fmt::format("no rule is named {}, where the text begins; define it", Shown(root)));
  }
  return rules_->Call(named_[entry->second].rule);
}

absl::Status EbnfParser::ParseRule() {
  if (!IsRuleHead()) {
    absl::Status status = CheckAttribute(next_);
    return status.ok() ? UnexpectedToken() : status;
  }
  if (!token_.begins_line) {
    return lexer_.Invalid(token_.offset, "a rule begins a line; put its name on a new one");
  }
  const size_t offset = token_.offset;
  const std::string_view name = token_.source;
  const RuleId rule = RuleOf(token_);
  if (rules_->IsDefined(rule)) {
    return lexer_.Invalid(offset, fmt::format("rule {} is defined twice; join the two with |, or "
                                              "rename one",
                                              Shown(name)));
  }
  for (int i = 0; i < 2; ++i) {
    if (absl::Status status = Advance(); !status.ok()) return status;
  }
  if (token_.kind == EbnfTokenKind::kEnd || IsRuleHead()) {
    return lexer_.Invalid(
        offset, fmt::format("rule {} has no body; write \"\" for the empty text", Shown(name)));
  }
  const absl::StatusOr<ExprId> body = ParseAlternatives(0);
  if (!body.ok()) return body.status();
  if (token_.kind != EbnfTokenKind::kEnd && !IsRuleHead()) return UnexpectedToken();
  rules_->Define(rule, *body);
  return absl::OkStatus();
}

absl::StatusOr<ExprId> EbnfParser::ParseAlternatives(int depth) {
  List<ExprId> parts;
  while (true) {
    const absl::StatusOr<ExprId> part = ParseSequence(depth);
    if (!part.ok()) return part.status();
    parts.push_back(*part);
    if (token_.kind != EbnfTokenKind::kAlternate) return rules_->AnyOf(parts);
    if (absl::Status status = Advance(); !status.ok()) return status;
  }
}

// A sequence of no item is the empty text.
absl::StatusOr<ExprId> EbnfParser::ParseSequence(int depth) {
  List<ExprId> parts;
  while (!IsRuleHead()) {
    switch (token_.kind) {
      case EbnfTokenKind::kEnd:
      case EbnfTokenKind::kAlternate:
      case EbnfTokenKind::kClose:
        return rules_->Sequence(parts);
      default:
        break;
    }
    absl::StatusOr<ExprId> part = ParseItem(depth);
    if (part.ok()) part = ParseRepeats(*part);
    if (!part.ok()) return part.status();
    parts.push_back(*part);
  }
  return rules_->Sequence(parts);
}

absl::StatusOr<ExprId> EbnfParser::ParseItem(int depth) {
  ExprId item = rules_->Never();
  switch (token_.kind) {
    case EbnfTokenKind::kName:
      return ParseCall();
    case EbnfTokenKind::kOpen:
      return ParseGroup(depth + 1);
    case EbnfTokenKind::kLiteral:
      item = rules_->Literal(token_.literal);
      break;
    case EbnfTokenKind::kClass:
      item = rules_->Chars(token_.set);
      break;
    default:
      return UnexpectedToken();
  }
  if (absl::Status status = Advance(); !status.ok()) return status;
  return item;
}

absl::StatusOr<ExprId> EbnfParser::ParseGroup(int depth) {
  const size_t offset = token_.offset;
  if (depth > kEbnfDepthMax) {
    return absl::ResourceExhaustedError(
        lexer_
            .Invalid(offset, fmt::format("groups are nested deeper than {} levels, the most that "
                                         "specd reads; give inner groups rules of their own",
                                         kEbnfDepthMax))
            .message());
  }
  if (absl::Status status = Advance(); !status.ok()) return status;
  absl::StatusOr<ExprId> group = ParseAlternatives(depth);
  if (!group.ok()) return group;
  if (token_.kind != EbnfTokenKind::kClose) {
    return lexer_.Invalid(offset, "the group has no closing parenthesis; add it");
  }
  if (absl::Status status = Advance(); !status.ok()) return status;
  return group;
}

absl::StatusOr<ExprId> EbnfParser::ParseRepeats(ExprId item) {
  if (token_.kind != EbnfTokenKind::kRepeat) return item;
  const ExprId repeated = rules_->Repeat(item, token_.min, token_.max);
  if (absl::Status status = Advance(); !status.ok()) return status;
  if (token_.kind != EbnfTokenKind::kRepeat) return repeated;
  // xgrammar refuses it too, and people who write a regex mean something else by +? and *+.
  return lexer_.Invalid(token_.offset,
                        "a repetition follows another; put the first one into parentheses");
}

absl::StatusOr<ExprId> EbnfParser::ParseCall() {
  if (absl::Status status = CheckMacro(); !status.ok()) return status;
  const ExprId call = rules_->Call(RuleOf(token_));
  if (absl::Status status = Advance(); !status.ok()) return status;
  if (next_.kind == EbnfTokenKind::kAssign) {
    if (absl::Status status = CheckAttribute(token_); !status.ok()) return status;
  }
  return call;
}

absl::Status EbnfParser::CheckMacro() const {
  if (next_.kind != EbnfTokenKind::kOpen ||
      std::find(kMacros.begin(), kMacros.end(), token_.source) == kMacros.end()) {
    return absl::OkStatus();
  }
  return lexer_.Unsupported(
      token_.offset,
      fmt::format("unsupported macro {} of xgrammar: write rules, or use the structural_tag or "
                  "regex constraint",
                  token_.source));
}

// The attributes of name[max_tokens=10] ::= ... read as a class.
absl::Status EbnfParser::CheckAttribute(const EbnfToken& token) const {
  if (token.kind != EbnfTokenKind::kClass) return absl::OkStatus();
  for (const std::string_view attribute : {"max_tokens", "capture"}) {
    if (token.source.substr(1, attribute.size()) != attribute) continue;
    return lexer_.Unsupported(
        token.offset, fmt::format("unsupported attribute {} of a rule: remove it", attribute));
  }
  return absl::OkStatus();
}

absl::Status EbnfParser::UnexpectedToken() const {
  switch (token_.kind) {
    case EbnfTokenKind::kRepeat:
      return lexer_.Invalid(token_.offset, "a repetition has nothing before it; put an item there");
    case EbnfTokenKind::kClose:
      return lexer_.Invalid(token_.offset,
                            "a closing parenthesis has no opening one; remove it, or add the "
                            "other");
    case EbnfTokenKind::kAssign:
      return lexer_.Invalid(token_.offset, "::= has no name before it; a rule is name ::= body");
    default:
      return lexer_.Invalid(token_.offset, "a rule is expected here, written name ::= body");
  }
}

}  // namespace

absl::StatusOr<ExprId> ParseEbnf(std::string_view text, const EbnfOptions& options,
                                 GrammarRules* rules) {
  if (text.size() > kEbnfSizeBytesMax) {
    return absl::ResourceExhaustedError(
        fmt::format("the grammar has {} bytes, allowed are {}; make it shorter", text.size(),
                    kEbnfSizeBytesMax));
  }
  if (const size_t offset = FindInvalidUtf8(text); offset != std::string_view::npos) {
    return absl::InvalidArgumentError(
        fmt::format("the grammar is not valid UTF-8 at byte {}; save the text as UTF-8", offset));
  }
  return EbnfParser(text, rules).Parse(options.root);
}

}  // namespace specd::grammar
