// RunFetch copies a round from pinned host memory to the device for a launch of any number of
// blocks. Thread is the class of fused_round.h.
//
// The memory itself holds the number of bytes, so one captured launch serves rounds of every size.
// A read of host memory takes about as long as a short round. Every thread therefore requests its
// first piece together with the number, not after it.
#pragma once

#include "kernels/core/check.h"
#include "kernels/core/round_launch.h"

namespace specd {

struct alignas(kFetchUnit) FetchPiece {
  uint32_t words[kFetchUnit / sizeof(uint32_t)];
};

template <typename Thread>
SPECD_HD void RunFetch(const Thread& thread, const FetchPlan& plan) {
  const auto* source = static_cast<const FetchPiece*>(plan.source);
  auto* destination = static_cast<FetchPiece*>(plan.destination);
  const int64_t threads_per_block = int64_t{thread.num_warps()} * 32;
  const int64_t stride = thread.num_blocks() * threads_per_block;
  const auto capacity = static_cast<int64_t>(plan.capacity_bytes / kFetchUnit);
  int64_t i = thread.block() * threads_per_block + thread.warp() * 32 + thread.lane();
  if (i >= capacity) return;
  FetchPiece piece = source[i];
  const uint64_t size_bytes = static_cast<const FetchHeader*>(plan.source)->size_bytes;
  const auto asked = static_cast<int64_t>(size_bytes / kFetchUnit);
  const int64_t end = asked < capacity ? asked : capacity;
  while (i < end) {
    destination[i] = piece;
    i += stride;
    if (i < end) piece = source[i];
  }
}

}  // namespace specd
