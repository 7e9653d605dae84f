// RequestTarget is the target of a request, read: its path, and the values behind the question
// mark.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd::http {

struct RequestTarget {
  std::string path;  // as it was sent: a slash inside a name is still %2F
  std::vector<std::pair<std::string, std::string>> values;

  const std::string* Find(std::string_view name) const;
};

// INVALID_ARGUMENT: it begins with no slash, or its values cannot be read, or have other names than
// `names`, or one twice.
absl::StatusOr<RequestTarget> ParseTarget(std::string_view target,
                                          const std::vector<std::string_view>& names);

// %41 becomes A. Nullopt if a % has no two hexadecimal digits.
std::optional<std::string> DecodePercents(std::string_view text);

// The host of the field Host without its port. True if no other name can lead to it: a numeric
// address, localhost, or one of `names`.
bool IsKnownHost(std::string_view host, const std::vector<std::string>& names);

}  // namespace specd::http
