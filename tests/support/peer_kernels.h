// The kernels that PeerGpu launches, as a device and a pretended one run them: small ones that read
// memory or answer words, for what two processes' kernels may rely on.
//
// Each is one block, talks through a few words, and ends by itself: whoever waits for a word looks
// at a clock too, so that no broken check leaves a device busy.
//
// Device is what runs a kernel: lane() and num_lanes() of its block; Read of memory that others may
// write; Acquire and Release of a word, as in kernels/warps/staged_turn.h; NowNs, a clock; and
// what every lane calls together: SumOfAll, and OfFirst, lane 0's value for all.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"
#include "kernels/core/gpu_context.h"

namespace specd {

enum class PeerKernel : uint32_t {
  kRead,  // sums the memory again and again until kUntil is not 0, `count` times at most
  kEcho,  // stores 1, 2 .. count to kProgress, each until kUntil has reached it
};

// By their number from `words` on.
enum PeerWord : uint64_t {
  kUntil,
  kProgress,  // of kRead: how often the memory has been summed
  kSum,       // of all its 64-bit words, the last time
  kOthers,    // how many sums were not the first one's
  kEnd,       // a PeerEnd, stored last
  kNumPeerWords,
};

enum PeerEnd : uint64_t { kRuns = 0, kDone = 1, kOutOfTime = 2 };

struct PeerLaunch {
  PeerKernel kernel = PeerKernel::kRead;
  GpuAddress words = 0;
  GpuAddress memory = 0;
  uint64_t size_bytes = 0;  // whole words
  uint64_t count = UINT64_MAX;
  uint64_t limit_ms = 30000;
};

SPECD_INLINE uint64_t* PeerWordsOf(const PeerLaunch& launch) {
  return reinterpret_cast<uint64_t*>(launch.words);
}

template <typename Device>
SPECD_HD bool IsOutOfTime(const Device& device, const PeerLaunch& launch, uint64_t start_ns) {
  return device.NowNs() - start_ns > launch.limit_ms * 1000000;
}

template <typename Device>
SPECD_HD void RunPeerRead(const Device& device, const PeerLaunch& launch) {
  uint64_t* const words = PeerWordsOf(launch);
  const auto* const memory = reinterpret_cast<const uint64_t*>(launch.memory);
  const uint64_t start_ns = device.NowNs();
  uint64_t first = 0;
  uint64_t others = 0;
  uint64_t end = kRuns;
  for (uint64_t pass = 1; end == kRuns; ++pass) {
    uint64_t own = 0;
    for (uint64_t i = device.lane(); i < launch.size_bytes / sizeof(*memory);
         i += device.num_lanes()) {
      own += device.Read(memory + i);
    }
    const uint64_t sum = device.SumOfAll(own);
    if (pass == 1) first = sum;
    if (sum != first) ++others;
    if (device.lane() == 0) {
      device.Release(sum, words + kSum);
      device.Release(others, words + kOthers);
      device.Release(pass, words + kProgress);
      if (pass == launch.count || device.Acquire(words + kUntil) != 0) {
        end = kDone;
      } else if (IsOutOfTime(device, launch, start_ns)) {
        end = kOutOfTime;
      }
    }
    end = device.OfFirst(end);
  }
  if (device.lane() == 0) device.Release(end, words + kEnd);
}

// One lane.
template <typename Device>
SPECD_HD void RunPeerEcho(const Device& device, const PeerLaunch& launch) {
  uint64_t* const words = PeerWordsOf(launch);
  const uint64_t start_ns = device.NowNs();
  uint64_t end = kDone;
  for (uint64_t value = 1; value <= launch.count && end == kDone; ++value) {
    device.Release(value, words + kProgress);
    do {
      if (IsOutOfTime(device, launch, start_ns)) end = kOutOfTime;
    } while (end == kDone && device.Acquire(words + kUntil) < value);
  }
  device.Release(end, words + kEnd);
}

}  // namespace specd
