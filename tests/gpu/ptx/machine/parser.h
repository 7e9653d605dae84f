// ParseModule reads the text of a PTX module into the parts that the decoder takes.
//
// It knows the directives that nvcc writes for kernels. An unknown directive is an error that names
// file and line. PTX ISA, "Syntax", "State Spaces, Types, and Variables", "Directives".
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

#include "tests/gpu/ptx/machine/syntax.h"

namespace specd::ptx {

// `file` is the name that errors give.
absl::StatusOr<ModuleText> ParseModule(const std::string& file, std::string_view text);

// The bytes of a type such as "u32"; kPredicateBytes for "pred"; -1 for any other word.
int BytesOfType(std::string_view type);

}  // namespace specd::ptx
