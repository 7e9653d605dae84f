#include "speculative/grammar/front_ends/regex_parser.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/text_error.h"
#include "speculative/grammar/base/utf8_text.h"
#include "speculative/grammar/front_ends/anchored_expr.h"
#include "speculative/grammar/front_ends/regex_reader.h"

namespace specd::grammar {
namespace {

// LineTerminator of ECMA-262.
CharSet AllButLineEnds() {
  CharSet ends = CharSet::One('\n');
  ends.Add('\r', '\r');
  ends.Add(0x2028, 0x2029);
  return ends.Negated();
}

// Whether a quantifier may come next, and why not.
enum class Before : uint8_t { kNothing, kAnchor, kAtom, kQuantifier };

struct Count {
  uint32_t min = 0;
  uint32_t max = 0;
};

// A group that is open, or the whole pattern. The parts of its last alternative end with `literal`.
struct Group {
  size_t offset = 0;
  List<AnchoredExpr> alternatives = {};
  List<AnchoredExpr> parts = {};
  std::string literal = {};
  size_t last_char_size = 0;  // of the literal's last character
  Before before = Before::kNothing;
};

// A stack of groups takes the place of recursion.
class RegexParser {
 public:
  RegexParser(std::string_view pattern, GrammarRules* rules) : reader_(pattern), rules_(*rules) {
    groups_.emplace_back();
  }

  absl::StatusOr<AnchoredExpr> Parse();

 private:
  absl::Status TakeItem();
  absl::Status TakeBrace();
  absl::Status OpenGroup();
  absl::Status CloseGroup();
  absl::Status TakeGroupName(size_t group_offset);
  // The offset is that of the quantifier; a lazy mark may follow.
  absl::Status Quantify(size_t offset, Count count);

  void AddChar(uint32_t code_point);
  void AddSet(const CharSet& set) { AddAtom(Unanchored(rules_.Chars(set), false)); }
  void AddAtom(const AnchoredExpr& atom);
  void AddAnchor(const AnchoredExpr& anchor);
  void FlushLiteral();
  void EndAlternative();

  Group& group() { return groups_.back(); }

  RegexReader reader_;
  GrammarRules& rules_;
  List<Group> groups_;
};

void RegexParser::AddChar(uint32_t code_point) {
  const size_t size_before = group().literal.size();
  AppendUtf8(code_point, &group().literal);
  group().last_char_size = group().literal.size() - size_before;
  group().before = Before::kAtom;
}

void RegexParser::AddAtom(const AnchoredExpr& atom) {
  FlushLiteral();
  group().parts.push_back(atom);
  group().before = Before::kAtom;
}

void RegexParser::AddAnchor(const AnchoredExpr& anchor) {
  AddAtom(anchor);
  group().before = Before::kAnchor;
}

void RegexParser::FlushLiteral() {
  if (group().literal.empty()) return;
  group().parts.push_back(Unanchored(rules_.Literal(group().literal), false));
  group().literal.clear();
}

void RegexParser::EndAlternative() {
  FlushLiteral();
  group().alternatives.push_back(ConcatAnchored(group().parts, &rules_));
  group().parts.clear();
  group().before = Before::kNothing;
}

absl::StatusOr<AnchoredExpr> RegexParser::Parse() {
  while (!reader_.AtEnd()) {
    if (absl::Status status = TakeItem(); !status.ok()) return status;
  }
  if (groups_.size() > 1) {
    return reader_.Invalid(group().offset,
                           "the group has no end; write ) after it, or \\( for a parenthesis");
  }
  EndAlternative();
  return UniteAnchored(group().alternatives, &rules_);
}

absl::Status RegexParser::TakeItem() {
  const size_t offset = reader_.offset();
  if (reader_.NextIs("\\")) {
    absl::StatusOr<RegexChars> escape = reader_.TakeEscape(/*is_in_class=*/false);
    if (!escape.ok()) return escape.status();
    escape->is_set ? AddSet(escape->set) : AddChar(escape->code_point);
    return absl::OkStatus();
  }
  if (reader_.NextIs("[")) {
    const absl::StatusOr<CharSet> set = reader_.TakeClass();
    if (!set.ok()) return set.status();
    AddSet(*set);
    return absl::OkStatus();
  }
  if (reader_.NextIs("{")) return TakeBrace();
  if (reader_.NextIs("(")) return OpenGroup();
  const uint32_t next = reader_.TakeChar();
  switch (next) {
    case ')':
      return CloseGroup();
    case '|':
      EndAlternative();
      break;
    case '*':
      return Quantify(offset, {0, kUnbounded});
    case '+':
      return Quantify(offset, {1, kUnbounded});
    case '?':
      return Quantify(offset, {0, 1});
    case '.':
      AddSet(AllButLineEnds());
      break;
    case '^':
      AddAnchor(BeginAnchor(rules_));
      break;
    case '$':
      AddAnchor(EndAnchor(rules_));
      break;
    default:
      AddChar(next);
  }
  return absl::OkStatus();
}

// A brace that begins nothing like a count stands for itself.
absl::Status RegexParser::TakeBrace() {
  const size_t offset = reader_.offset();
  reader_.Take("{");
  if (reader_.NextIs(",")) {
    return reader_.Invalid(offset,
                           "a count without its minimum means different things in different "
                           "dialects; write {0,n}, or \\{ for a brace");
  }
  if (!reader_.NextIsDigit()) {
    AddChar('{');
    return absl::OkStatus();
  }
  Count count;
  count.min = reader_.TakeNumber(kRegexCountMax + 1);
  count.max = count.min;
  if (reader_.Take(",")) {
    count.max = reader_.NextIsDigit() ? reader_.TakeNumber(kRegexCountMax + 1) : kUnbounded;
  }
  if (!reader_.Take("}")) {
    return reader_.Invalid(offset, "the count is not {m}, {m,} or {m,n}; write \\{ for a brace");
  }
  if (count.min > kRegexCountMax || (count.max != kUnbounded && count.max > kRegexCountMax)) {
    return reader_.TooLarge(
        offset,
        fmt::format("a count is more than {}; repeat less, or without a bound", kRegexCountMax));
  }
  if (count.min > count.max) {
    return reader_.Invalid(offset,
                           fmt::format("the count {{{},{}}} ends before it begins; exchange "
                                       "its numbers",
                                       count.min, count.max));
  }
  return Quantify(offset, count);
}

absl::Status RegexParser::Quantify(size_t offset, Count count) {
  switch (group().before) {
    case Before::kNothing:
      return reader_.Invalid(
          offset,
          "the quantifier has nothing to repeat; write a backslash before it for the character");
    case Before::kAnchor:
      return reader_.Invalid(offset, "an anchor cannot be repeated; leave the quantifier out");
    case Before::kQuantifier:
      return reader_.Invalid(offset,
                             "a quantifier follows a quantifier, and there are no possessive ones; "
                             "write (?:...) around the first");
    case Before::kAtom:
      break;
  }
  reader_.Take("?");  // a lazy quantifier has the same language
  AnchoredExpr part;
  if (group().literal.empty()) {
    part = group().parts.back();
    group().parts.pop_back();
  } else {
    const size_t head_size = group().literal.size() - group().last_char_size;
    part = Unanchored(rules_.Literal(group().literal.substr(head_size)), false);
    group().literal.resize(head_size);
  }
  const AnchoredExpr repeat = RepeatAnchored(part, count.min, count.max, &rules_);
  if (repeat.num_repeats > kRegexAnchorRepeatsMax) {
    return reader_.TooLarge(offset,
                            fmt::format("more than {} repetitions inside each other have an "
                                        "anchor inside; move the anchor out",
                                        kRegexAnchorRepeatsMax));
  }
  AddAtom(repeat);
  group().before = Before::kQuantifier;
  return absl::OkStatus();
}

absl::Status RegexParser::OpenGroup() {
  const size_t offset = reader_.offset();
  reader_.Take("(");
  if (reader_.Take("?")) {
    if (reader_.NextIs("=") || reader_.NextIs("!") || reader_.NextIs("<=") ||
        reader_.NextIs("<!")) {
      return reader_.Unsupported(
          offset,
          "unsupported lookaround; write the texts that are allowed, or begin the pattern with ^ "
          "and a lookahead");
    }
    if (reader_.NextIs(">")) {
      return reader_.Unsupported(offset, "unsupported atomic group; write (?:...)");
    }
    if (reader_.NextIs("P=")) {
      return reader_.Unsupported(
          offset,
          "unsupported backreference; write the group's pattern once more if "
          "any text of it may come here");
    }
    if (reader_.Take("<") || reader_.Take("P<")) {
      if (absl::Status status = TakeGroupName(offset); !status.ok()) return status;
    } else if (!reader_.Take(":")) {
      return reader_.Unsupported(offset,
                                 "unsupported kind of group (flags, comment or condition); groups "
                                 "are (...), (?:...) and (?<name>...)");
    }
  }
  if (groups_.size() > kRegexDepthMax) {
    return reader_.TooLarge(
        offset, fmt::format("more than {} groups inside each other; nest less", kRegexDepthMax));
  }
  groups_.push_back({.offset = offset});
  return absl::OkStatus();
}

absl::Status RegexParser::TakeGroupName(size_t group_offset) {
  bool is_first = true;
  while (!reader_.AtEnd() && !reader_.NextIs(">")) {
    const bool is_digit = reader_.NextIsDigit();
    const uint32_t c = reader_.TakeChar();
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!is_letter && (!is_digit || is_first)) {
      return reader_.Invalid(group_offset,
                             "a group's name has letters, digits and _, and begins with no digit");
    }
    is_first = false;
  }
  if (is_first || !reader_.Take(">")) {
    return reader_.Invalid(group_offset,
                           "the group's name is empty or has no end; write (?<name>...)");
  }
  return absl::OkStatus();
}

absl::Status RegexParser::CloseGroup() {
  if (groups_.size() == 1) {
    return reader_.Invalid(reader_.offset() - 1,
                           "the parenthesis closes no group; write \\) for the character");
  }
  EndAlternative();
  const AnchoredExpr whole = UniteAnchored(group().alternatives, &rules_);
  groups_.pop_back();
  AddAtom(whole);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AnchoredExpr> ParseAnchoredRegex(std::string_view pattern, GrammarRules* rules) {
  return RegexParser(pattern, rules).Parse();
}

absl::StatusOr<ExprId> ParsePlainRegex(std::string_view pattern, bool is_search,
                                       GrammarRules* rules) {
  const absl::StatusOr<AnchoredExpr> whole = ParseAnchoredRegex(pattern, rules);
  if (!whole.ok()) return whole.status();
  return is_search ? SearchAnchored(*whole, rules) : whole->expr[1][1];
}

}  // namespace specd::grammar
