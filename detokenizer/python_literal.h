// ParsePythonLiteral reads what Python's repr() writes for a str or a bytes object, for a loader.
//
// Pure function, safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace specd {

// The bytes of the object; those of a str are its UTF-8. Nothing if repr() does not write this.
// REQUIRES: `literal` is valid UTF-8.
std::optional<std::string> ParsePythonLiteral(std::string_view literal);

}  // namespace specd
