// Peer is another sampler that verifies the same rounds as specd, for comparison.
//
// Peer is a seam: the command and the build choose the peer. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/types.h"

namespace specd::bench {

class Peer {
 public:
  virtual ~Peer() = default;

  // Prepares for a run of `round`, outside the measured time.
  virtual void Prepare(int32_t round) = 0;

  // Verifies every sequence of the round that was prepared last, and appends its tokens to
  // `tokens`.
  virtual void Run(std::vector<TokenId>* tokens) = 0;
};

}  // namespace specd::bench
