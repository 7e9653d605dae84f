// Dice draws small numbers from a seed for the judge of grammars: the same ones on every machine.
//
// The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014). One thread at a time.
//
//   Dice dice(7);
//   if (dice.OneIn(3)) text += names[dice.Below(names.size())];
#pragma once

#include <cstddef>
#include <cstdint>

namespace specd::grammar {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) { Next(); }

  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  // 0 to `end` - 1. REQUIRES: end > 0. The remainder favours small numbers by less than 2^-32.
  size_t Below(size_t end) { return static_cast<size_t>(Next() % end); }
  bool OneIn(size_t chances) { return Below(chances) == 0; }
  template <typename T, size_t kSize>
  const T& Pick(const T (&list)[kSize]) {
    return list[Below(kSize)];
  }

 private:
  uint64_t state_;
};

}  // namespace specd::grammar
