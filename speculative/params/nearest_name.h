// NearestName finds the known name that a misspelt one was probably meant to be, for errors.
//
// Names are compared by Levenshtein's distance. A name that shares less than half of its characters
// with every known one has no nearest name. Pure function, safe from any thread.
//
//   NearestName("temprature", {"top_p", "temperature"});   // "temperature"
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace specd {

inline constexpr size_t kNearNameBytesMax = 64;  // no known name is near a longer one

// Returns an empty name if none is near.
std::string_view NearestName(std::string_view name, std::span<const std::string_view> known);

// Returns "; did you mean NAME?", or nothing.
std::string DidYouMean(std::string_view name, std::span<const std::string_view> known);

}  // namespace specd
