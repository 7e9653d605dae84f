// Random draws what a simulated run does next, from a seed alone.
//
// The order of draws is the run: the same seed gives the same run. One thread.
#pragma once

#include <cstdint>

namespace specd::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}

  // SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // 0 .. bound - 1. REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  bool OneIn(uint64_t bound) { return Below(bound) == 0; }

 private:
  uint64_t state_;
};

}  // namespace specd::sim
