// SessionUse tells an operator what one engine has of what it may have.
//
// A session fills it for OperatorService. Plain data.
#pragma once

#include <cstdint>

namespace specd {

struct SessionUse {
  int64_t age_ns = 0;
  uint64_t memory_bytes = 0;
  uint64_t memory_bytes_max = 0;  // 0: not bounded
  uint64_t sequences = 0;         // open, or closed under a round that still runs
  uint64_t sequences_max = 0;
  uint64_t rounds = 0;  // in flight, calls included
  uint64_t rounds_max = 0;
  uint64_t openings = 0;                 // of sequences, since the engine attached
  uint64_t openings_per_second_max = 0;  // 0: not bounded
  uint64_t refusals = 0;                 // messages that were answered with an error
};

}  // namespace specd
