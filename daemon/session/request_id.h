// The functions here check and make the names of sequences, for SessionSequences.
//
// A name comes from the engine, and readers of logs and texts see it. Pure functions; safe from any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace specd {

// Subscribers see the name, so it is UTF-8 of bounded length without control characters.
absl::Status CheckRequestId(const std::string& request_id);

// The names of n sequences; the first has the request's own id.
std::vector<std::string> NamesOf(const std::string& request_id, size_t n);

}  // namespace specd
