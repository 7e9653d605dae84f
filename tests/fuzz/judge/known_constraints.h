// KnownConstraints are texts that once crashed the compiler of grammars or took too much of it.
//
// Short ones stand in a file, one a line: the kind, a space, the text. A line end inside a text is
// written as the character U+2424. Long ones are made here. Any thread may call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/grammar_request.h"

namespace specd::grammar {

struct KnownConstraint {
  std::string name;  // of a short one: its beginning
  GrammarRequest request;
};

// The name of a kind in the file and in reports: json, regex, ebnf, choice.
std::string_view KindName(GrammarKind kind);
// kNone: there is no such kind.
GrammarKind KindOf(std::string_view name);

// InvalidArgument: a line of `file` has another form.
absl::StatusOr<std::vector<KnownConstraint>> ParseKnown(std::string_view file);
std::vector<KnownConstraint> LargeConstraints();
// A request as a line of the file.
std::string LineOfKnown(const GrammarRequest& request);

}  // namespace specd::grammar
