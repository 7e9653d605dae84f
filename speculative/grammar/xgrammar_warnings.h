// FindUnenforced lists what of a JSON Schema the xgrammar library ignores.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace specd::grammar {

// One line for each place; `pointer` stands before each JSON pointer. InvalidArgument if the text
// is no JSON Schema.
absl::StatusOr<std::vector<std::string>> FindUnenforced(std::string_view schema,
                                                        const std::string& pointer);

}  // namespace specd::grammar
