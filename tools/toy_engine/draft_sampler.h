// How the toy engine picks draft tokens from rows of its drafter.
//
// Either without chance (the likeliest token: SPECD_ONE_HOT), or drawn from
// softmax(row / temperature) (SPECD_SAMPLED): then specd needs the same row and the same
// temperature to verify without bias. The generator is the engine's own and has nothing to do with
// the coins that specd draws; it belongs to a stream, so a batch cannot change the drafts of its
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
