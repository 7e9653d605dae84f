// The peer kernels read memory or answer words for PeerGpu, in tests of the rules that kernels of
// two processes may rely on. Real and fake devices run them.
//
// Each kernel is one block, communicates through a few words, and ends by itself. Every wait for a
// word also looks at a clock, so a broken check never leaves a device busy.
//
// Device runs a kernel. It has lane() and num_lanes() of its block. It has Read of memory that
// others may write, and Acquire and Release of a word, as in kernels/warps/staged_turn.h. NowNs is
// a clock. All lanes together call SumOfAll, and OfFirst, which gives lane 0's value to all.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"
#include "kernels/core/gpu_context.h"

namespace specd {

enum class PeerKernel : uint32_t {
  kRead,  // sums the memory until kUntil is not 0, at most `count` times
  kEcho,  // stores 1, 2 .. count to kProgress, each after kUntil has reached it
};

// The words' numbers from `words` on.
enum PeerWord : uint64_t {
  kUntil,
  kProgress,  // for kRead: the number of sums so far
  kSum,       // the last sum of all its 64-bit words
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
  uint64_t end = kRuns;
  for (uint64_t pass = 1; end == kRuns; ++pass) {
    uint64_t own = 0;
    for (uint64_t i = device.lane(); i < launch.size_bytes / sizeof(*memory);
         i += device.num_lanes()) {
      own += device.Read(memory + i);
    }
    const uint64_t sum = device.SumOfAll(own);
    if (device.lane() == 0) {
      device.Release(sum, words + kSum);
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

// Run by one lane.
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
