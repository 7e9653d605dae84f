// Peer: another sampler, which verifies the rounds that specd verifies.
//
// A seam: which peer there is depends on the command and on the build. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/types.h"

namespace specd::bench {

class Peer {
 public:
  virtual ~Peer() = default;

  // Makes ready for a run of `round`; its time does not count.
  virtual void Prepare(int32_t round) = 0;

  // Verifies every sequence of the round that was prepared last, appending its tokens to `tokens`.
  virtual void Run(std::vector<TokenId>* tokens) = 0;
};

}  // namespace specd::bench
