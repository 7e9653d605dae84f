// ParseEbnf reads a grammar in the dialect of GBNF (llama.cpp) and xgrammar, for constraints of
// kind kEbnf.
//
//   root  ::= item ("," item)*        # a comment
//   item  ::= [a-z]+ | "-" digit{1,3}
//           | ""                      # an alternative may begin a line
//   digit ::= [0-9]
//
// A rule ends where a line begins with the next `name ::=`. Texts and classes hold characters, so
// "\xFF" is U+00FF. A dot is any character, line ends included. Rules may call themselves in any
// position, the first included. A spelling that the two programs read differently is refused; so
// are xgrammar's lookahead and macros, and llama.cpp's tokens. Pure function, for any thread.
//
//   GrammarRules rules;
//   absl::StatusOr<ExprId> root = ParseEbnf("root ::= \"yes\" | \"no\"", {}, &rules);
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

struct EbnfOptions {
  std::string root = "root";
};

inline constexpr size_t kEbnfSizeBytesMax = 1 << 20;
inline constexpr int kEbnfDepthMax = 256;

// InvalidArgument: the text is wrong, with line, column and caret. Unimplemented: right text that
// cannot be enforced. ResourceExhausted: past a limit. After an error the rules are of no use.
absl::StatusOr<ExprId> ParseEbnf(std::string_view text, const EbnfOptions& options,
                                 GrammarRules* rules);

}  // namespace specd::grammar
