// RoundLimitsOf gives the limits that an engine has declared to the backend of its rounds.
//
// Pure. REQUIRES: the limits passed ValidateLimits, so every number fits.
#pragma once

#include "ipc/base/limits.h"
#include "kernels/backend.h"

namespace specd {

inline BackendLimits RoundLimitsOf(const SessionLimits& limits) {
  return {.vocab_size = static_cast<int32_t>(limits.vocab_size),
          .max_batch = static_cast<int32_t>(limits.max_batch),
          .max_draft = static_cast<int32_t>(limits.max_draft),
          .max_path = static_cast<int32_t>(limits.max_path)};
}

}  // namespace specd
