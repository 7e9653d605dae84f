// TimeRead times a read of some memory that does nothing with the data. Kernels are compared with
// this bound.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace specd::bench {

using MemorySpan = std::span<const char>;

// Splits the spans into parts of about equal size, one for each thread.
std::vector<std::vector<MemorySpan>> SplitEvenly(const std::vector<MemorySpan>& spans,
                                                 int32_t num_parts);

// The us in which as many threads as there are parts read them. All threads are awake before the
// clock starts, and have ended when the function returns. So they neither pay for waking nor
// disturb the work that is measured in between.
double TimeRead(const std::vector<std::vector<MemorySpan>>& parts);

}  // namespace specd::bench
