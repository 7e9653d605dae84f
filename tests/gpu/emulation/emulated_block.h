// RunEmulatedBlock runs a CUDA block on the host for tests: the threads of warp_team.h as fibers.
//
// WarpTeam<EmulatedThread> runs the source that nvcc compiles, with N warps of 32 threads. Threads
// yield at shuffles, ballots and barriers. The schedule seed decides which warp continues, for how
// long, and in which order its threads run. If a thread is missing at a shuffle, a ballot or a
// barrier, the emulation returns an error text. A GPU would hang or give garbage. Deterministic for
// a seed; one launch at a time in a process. Works under AddressSanitizer and ThreadSanitizer.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include "kernels/warps/warp_team.h"

namespace specd {

class EmulatedBlock;

// The Thread of WarpTeam; RunEmulatedBlock makes it.
class EmulatedThread {
 public:
  EmulatedThread(EmulatedBlock* block, int32_t index) : block_(block), index_(index) {}

  int32_t lane() const { return index_ % 32; }
  int32_t warp() const { return index_ / 32; }
  int32_t num_warps() const;
  int32_t block() const;
  int32_t num_blocks() const;
  uint32_t Shuffle(uint32_t value, int32_t source) const;
  uint32_t Ballot(bool predicate) const;
  int32_t LargestOfWarp(int32_t value) const;
  uint32_t SumOfWarp(uint32_t value) const;
  void Sync() const;
  void SyncWarp() const;
  // Lanes do not look at the same time. If each looked for itself, the warp could take two
  // branches.
  int32_t Peek(const int32_t* word) const {
    return static_cast<int32_t>(Shuffle(static_cast<uint32_t>(*word), 0));
  }
  uint64_t Peek(const uint64_t* word) const { return FirstOf(Look(word)); }
  uint64_t Look(const uint64_t* word) const { return *word; }
  uint64_t FirstOf(uint64_t value) const {
    const uint32_t low = Shuffle(static_cast<uint32_t>(value), 0);
    return uint64_t{Shuffle(static_cast<uint32_t>(value >> 32), 0)} << 32 | low;
  }
  void NoteBits(uint64_t bits, uint64_t* word) const {
    if (lane() == 0) *word |= bits;
  }
  template <typename Word>
  void Note(Word value, Word* word) const {
    if (lane() == 0) *word = value;
  }
  int32_t Take(int32_t* counter, int32_t num) const;
  bool IsLastToArrive(int32_t* counter, int32_t num_arrivals) const;
  template <typename Value>
  const Value& Shared(const Value& value) const {
    static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= kSharedBytes);
    void* const shared = SharedMemory();
    SyncWarp();
    if (lane() == 0) std::memcpy(shared, &value, sizeof(Value));
    SyncWarp();
    return *static_cast<const Value*>(shared);
  }

 private:
  friend class EmulatedBlock;
  static constexpr size_t kSharedBytes = 512;

  void* SharedMemory() const;  // the warp's

  EmulatedBlock* block_;
  int32_t index_;
};

struct EmulationOptions {
  int32_t num_threads = 32;  // a multiple of 32
  uint64_t schedule_seed = 0;
  // The place of this block in a launch of several blocks.
  int32_t block = 0;
  int32_t num_blocks = 1;
};

// Runs `body` in every thread of one block. Returns an empty string, or the error; after an error
// no thread continues.
std::string RunEmulatedBlock(const EmulationOptions& options,
                             const std::function<void(EmulatedThread)>& body);

// The same for all blocks of a launch. The seed also decides how many blocks run at the same time,
// in which order they start, and how long each continues. Blocks may not wait for each other, so a
// GPU could take each of these schedules.
std::string RunEmulatedBlocks(const EmulationOptions& options,
                              const std::function<void(EmulatedThread)>& body);

using EmulatedTeam = WarpTeam<EmulatedThread>;

// The bytes of shared memory before the first write: NaNs as floats, -1 as integers.
inline constexpr unsigned char kPoison = 0xFF;

}  // namespace specd
