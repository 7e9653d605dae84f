// DraftSampler picks draft tokens from rows of the toy engine's drafter.
//
// ArgMax picks without chance, the likeliest token (SPECD_ONE_HOT). Draw draws from softmax(row /
// temperature) (SPECD_SAMPLED). For sampled drafts specd needs the same row and the same
// temperature, to verify without bias. The generator is the engine's own and has nothing to do with
// specd's coins. Each stream has a generator of its own, so a batch cannot change the drafts of its
// members.
//
// Not safe to share between threads.
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace specd::toy {

// The likeliest token; the lowest id on a tie.
int32_t ArgMax(std::span<const float> row);

class DraftSampler {
 public:
  explicit DraftSampler(uint64_t seed) : generator_(seed) {}

  // REQUIRES: temperature > 0 and a row of finite logits.
  int32_t Draw(std::span<const float> row, double temperature);

 private:
  std::mt19937_64 generator_;
};

}  // namespace specd::toy
