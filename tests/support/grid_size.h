// GridSize gives the length of a test's longest loops.
//
// A sanitizer makes such loops five to twenty times slower, and finds its errors in a part of them.
// A sanitizer's build therefore runs that part, and every other build runs all of them.
//
// Thread-safe: it holds nothing.
//
//   for (int seed = 0; seed < GridSize({.full = 40, .sanitized = 8}); ++seed) ...
#pragma once

#include <cstdint>

namespace specd {

#if defined(SPECD_SANITIZED)  // tools/cmake/SpecdFlags.cmake
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

struct GridSizes {
  int32_t full;
  int32_t sanitized;
};
constexpr int32_t GridSize(const GridSizes& sizes) {
  return kIsSanitized ? sizes.sanitized : sizes.full;
}

}  // namespace specd
