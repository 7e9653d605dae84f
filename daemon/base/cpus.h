// ResolveThreads turns a user's number of threads into the number that a round uses. Callers that
// make a session use it. Safe from any thread.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

namespace specd {

// With more threads, memory limits a round and processors do not.
inline constexpr uint32_t kThreadsMax = 16;

// With 0 the result is the number of usable CPUs, at most kThreadsMax. REQUIRES: threads <=
// kThreadsMax.
inline int32_t ResolveThreads(uint32_t threads) {
  if (threads > 0) return static_cast<int32_t>(threads);
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return 1;
  return std::clamp(CPU_COUNT(&usable), 1, static_cast<int>(kThreadsMax));
}

}  // namespace specd
