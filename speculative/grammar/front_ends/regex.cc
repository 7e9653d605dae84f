#include "speculative/grammar/front_ends/regex.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "speculative/grammar/base/text_error.h"
#include "speculative/grammar/base/utf8_text.h"
#include "speculative/grammar/front_ends/lookahead.h"
#include "speculative/grammar/front_ends/regex_parser.h"

namespace specd::grammar {

absl::StatusOr<ExprId> ParseRegex(std::string_view pattern, const RegexOptions& options,
                                  GrammarRules* rules) {
  if (pattern.size() > kRegexSizeMaxBytes) {
    return absl::ResourceExhaustedError(
        fmt::format("regex: the pattern has {} bytes, and the limit is {}; write a shorter one",
                    pattern.size(), kRegexSizeMaxBytes));
  }
  if (const size_t offset = FindInvalidUtf8(pattern); offset != std::string_view::npos) {
    return TextError(absl::StatusCode::kInvalidArgument, "regex", pattern.substr(0, offset), offset,
                     "the pattern is not UTF-8; write \\xHH or \\u{...} for a character");
  }
  if (HasLookahead(pattern)) {
    absl::StatusOr<std::optional<ByteDfa>> dfa = LookaheadAutomaton(pattern, options.search);
    if (!dfa.ok()) return dfa.status();
    if (dfa->has_value()) return rules->Automaton(**std::move(dfa));
  }
  return ParsePlainRegex(pattern, options.search, rules);
}

}  // namespace specd::grammar
