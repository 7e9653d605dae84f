// AvailableMemory tells how many bytes this process can still use before the kernel kills some
// process for memory. A pure function of the system's files; safe from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace specd {

struct AvailableMemory {
  uint64_t bytes = UINT64_MAX;
  std::string bound_by;  // what bounds it, in words; empty: nothing is known
};

// The least of the machine's available memory (MemAvailable) and of what the process's control
// groups have left. Reads files, so it is not for a round. `root` is a prefix of their paths, for
// tests.
AvailableMemory FindAvailableMemory(const std::string& root = "");

}  // namespace specd
