// Translates the texts of constraints into what the xgrammar library reads.
//
// specd's texts of choices and structural tags are those of grammar_backend.h; the library has no
// choices and reads structural tags in a form of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd::grammar {

// A JSON array of strings becomes a grammar with one alternative for each.
absl::StatusOr<std::string> ChoiceToEbnf(std::string_view text);

// A JSON object of tags and triggers becomes a structural tag of the library. `to_ebnf` turns the
// schema of a tag into a grammar; `pointer` says where the schema is.
using SchemaToEbnf = absl::FunctionRef<absl::StatusOr<std::string>(std::string_view schema,
                                                                   const std::string& pointer)>;
absl::StatusOr<std::string> StructuralTagToXgrammar(std::string_view text, SchemaToEbnf to_ebnf);

// The library recurses into the groups of patterns and grammars.
inline constexpr size_t kGroupDepthMax = 256;

// Unimplemented for a pattern with parts that the library ignores: lookaround, and anchors inside.
// ResourceExhausted if the groups are nested too deep.
absl::Status CheckPattern(std::string_view pattern);

// ResourceExhausted if the groups of a grammar are nested too deep.
absl::Status CheckEbnf(std::string_view text);

// The text of an error of the library without its clock, file and line.
std::string_view TrimError(std::string_view text);

}  // namespace specd::grammar
