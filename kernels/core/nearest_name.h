// NearestName finds the known name that a misspelt one was probably meant to be, for errors.
//
// Names are compared by Levenshtein's distance. A name that shares less than half of its characters
// with every known one has no nearest name. Pure functions, safe from any thread.
//
//   NearestName("temprature", {"top_p", "temperature"});   // "temperature"
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace specd {

inline constexpr size_t kNearNameBytesMax = 64;  // no known name is near a longer one

// Levenshtein's distance: the fewest characters to insert, delete or replace.
inline size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Returns an empty name if none is near.
inline std::string_view NearestName(std::string_view name,
                                    std::span<const std::string_view> known) {
  if (name.size() > kNearNameBytesMax) return {};
  std::string_view nearest;
  size_t least = name.size() / 2 + 1;
  for (const std::string_view other : known) {
    const size_t distance = EditDistance(name, other);
    if (distance >= least) continue;
    least = distance;
    nearest = other;
  }
  return nearest;
}

// Returns "; did you mean NAME?", or nothing.
inline std::string DidYouMean(std::string_view name, std::span<const std::string_view> known) {
  const std::string_view nearest = NearestName(name, known);
  return nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?";
}

}  // namespace specd
