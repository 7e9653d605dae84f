// How many threads a round may use: for whoever makes a session from a number that a user gave.
// Safe from any thread.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

namespace specd {

// Beyond this the memory is the limit of a round, not the processors.
inline constexpr uint32_t kThreadsMax = 16;

// REQUIRES: threads <= kThreadsMax. 0: as many as usable CPUs, at most kThreadsMax.
inline int32_t ResolveThreads(uint32_t threads) {
  if (threads > 0) return static_cast<int32_t>(threads);
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return 1;
  return std::clamp(CPU_COUNT(&usable), 1, static_cast<int>(kThreadsMax));
}

}  // namespace specd
