// StructuralTagToXgrammar rewrites a structural tag into the form that the xgrammar library reads.
//
// Both public forms are read (structural_tag.h): tags with triggers, and a tree of formats. The
// library would compile the schemas inside in its strict mode, so that each becomes a grammar
// before. Formats of special tokens and of XML are refused by name.
#pragma once

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace specd::grammar {

// Turns a schema into a grammar; `pointer` says where it is in the tag.
using SchemaToEbnf = absl::FunctionRef<absl::StatusOr<std::string>(std::string_view schema,
                                                                   const std::string& pointer)>;

// InvalidArgument and Unimplemented, with the JSON pointer; ResourceExhausted past a limit.
absl::StatusOr<std::string> StructuralTagToXgrammar(std::string_view text, SchemaToEbnf to_ebnf);

}  // namespace specd::grammar
