// FindUnenforced lists what of a JSON Schema the xgrammar library does not enforce.
//
// The rules are those of version 0.2.8, found by trying a violating value for each keyword. They
// lean to the safe side: a warning may name a part that the library does enforce in that place.
// Parts that make the library refuse a valid value are not listed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace specd::grammar {

// Each line begins with the JSON pointer of its part. `pointer` is where the schema is in a larger
// document. InvalidArgument if the text is not JSON, and ResourceExhausted if it is nested deeper
// than a limit.
absl::StatusOr<std::vector<std::string>> FindUnenforced(std::string_view schema,
                                                        const std::string& pointer);

}  // namespace specd::grammar
