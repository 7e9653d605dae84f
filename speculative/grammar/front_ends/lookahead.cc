#include "speculative/grammar/front_ends/lookahead.h"

#include <algorithm>
#include <string>
#include <utility>

#include "speculative/grammar/automata/dfa_operations.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/front_ends/regex_parser.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {
namespace {

// Groups around a whole pattern, and lookaheads inside lookaheads.
constexpr int kDepthMax = 8;

// The offset after the item at `at`: an escape, a class or one byte.
size_t SkipItem(std::string_view pattern, size_t at) {
  if (pattern[at] == '\\') return std::min(at + 2, pattern.size());
  if (pattern[at] != '[') return at + 1;
  for (++at; at < pattern.size() && pattern[at] != ']';) at += pattern[at] == '\\' ? 2 : 1;
  return std::min(at + 1, pattern.size());
}

// The offset after the group that begins at `at`, or npos if it has no end.
size_t SkipGroup(std::string_view pattern, size_t at) {
  int depth = 0;
  while (at < pattern.size()) {
    depth += pattern[at] == '(' ? 1 : pattern[at] == ')' ? -1 : 0;
    at = SkipItem(pattern, at);
    if (depth == 0) return at;
  }
  return std::string_view::npos;
}

// The alternatives of the pattern; none if its groups do not match.
List<std::string_view> Alternatives(std::string_view pattern) {
  List<std::string_view> parts;
  size_t begin = 0;
  for (size_t at = 0; at < pattern.size();) {
    if (pattern[at] == ')') return {};
    if (pattern[at] == '|') {
      parts.push_back(pattern.substr(begin, at - begin));
      begin = at + 1;
    }
    at = pattern[at] == '(' ? SkipGroup(pattern, at) : SkipItem(pattern, at);
    if (at == std::string_view::npos) return {};
  }
  parts.push_back(pattern.substr(begin));
  return parts;
}

bool TakePrefix(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

class LookaheadCompiler {
 public:
  // The texts of `pattern`. Where `is_at_begin`, its match begins where the text does.
  absl::StatusOr<ByteDfa> Compile(std::string_view pattern, bool is_at_begin, bool is_search,
                                  int depth) {
    const List<std::string_view> alternatives = Alternatives(pattern);
    if (!HasLookahead(pattern) || alternatives.empty() || depth == kDepthMax) {
      return CompilePlain(pattern, is_at_begin, is_search);
    }
    ByteDfa all;
    for (const std::string_view alternative : alternatives) {
      const absl::StatusOr<ByteDfa> one =
          CompileAlternative(alternative, is_at_begin, is_search, depth);
      if (!one.ok()) return one;
      absl::StatusOr<ByteDfa> united = Unite(all, *one);
      if (!united.ok()) return united;
      all = *std::move(united);
    }
    return all;
  }

  bool has_found() const { return has_found_; }

 private:
  absl::StatusOr<ByteDfa> CompilePlain(std::string_view pattern, bool is_at_begin, bool is_search) {
    GrammarRules rules;
    const std::string text =
        is_at_begin ? std::string("^(?:").append(pattern).append(")") : std::string(pattern);
    const absl::StatusOr<ExprId> expr = ParsePlainRegex(text, is_search, &rules);
    if (!expr.ok()) return expr.status();
    return Determinize(rules, *expr);
  }

  absl::StatusOr<ByteDfa> CompileAlternative(std::string_view pattern, bool is_at_begin,
                                             bool is_search, int depth) {
    std::string_view rest = pattern;
    const bool begins = TakePrefix("^", &rest) || is_at_begin;
    // A group around everything only groups.
    const bool is_group = rest.starts_with("(") && SkipGroup(rest, 0) == rest.size() &&
                          (!rest.starts_with("(?") || rest.starts_with("(?:"));
    if (is_group && HasLookahead(rest)) {
      const size_t head = rest.starts_with("(?:") ? 3 : 1;
      return Compile(rest.substr(head, rest.size() - head - 1), begins, is_search, depth + 1);
    }
    List<std::pair<bool, std::string_view>> looks;  // is it negative, and its pattern
    while (begins && (rest.starts_with("(?=") || rest.starts_with("(?!"))) {
      const size_t end = SkipGroup(rest, 0);
      looks.emplace_back(rest[2] == '!', rest.substr(3, end - 4));
      rest.remove_prefix(end);
    }
    has_found_ = has_found_ || !looks.empty();
    absl::StatusOr<ByteDfa> dfa = CompilePlain(rest, begins, is_search);
    for (const auto& [is_negative, look] : looks) {
      if (!dfa.ok()) return dfa;
      const absl::StatusOr<ByteDfa> other =
          Compile(look, /*is_at_begin=*/true, /*is_search=*/true, depth + 1);
      if (!other.ok()) return other;
      dfa = is_negative ? Subtract(*dfa, *other) : Intersect(*dfa, *other);
    }
    return dfa;
  }

  bool has_found_ = false;
};

}  // namespace

bool HasLookahead(std::string_view pattern) {
  return pattern.find("(?=") != std::string_view::npos ||
         pattern.find("(?!") != std::string_view::npos;
}

absl::StatusOr<std::optional<ByteDfa>> LookaheadAutomaton(std::string_view pattern,
                                                          bool is_search) {
  LookaheadCompiler compiler;
  absl::StatusOr<ByteDfa> dfa = compiler.Compile(pattern, /*is_at_begin=*/!is_search, is_search, 0);
  if (!compiler.has_found()) return std::optional<ByteDfa>();
  if (!dfa.ok()) return dfa.status();
  return std::optional<ByteDfa>(*std::move(dfa));
}

}  // namespace specd::grammar
