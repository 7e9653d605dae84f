// An emulated CUDA block: the threads of warp_team.h as fibers on the host.
//
// WarpTeam<EmulatedThread> runs the source that nvcc compiles, with N warps of 32 threads.
// Shuffles, ballots and barriers are the points where threads give way; which warp goes on, for how
// long, and in which order its threads run is drawn from the schedule seed. A thread that is
// missing at a shuffle, a ballot or a barrier, which on a GPU hangs or gives garbage, is an error
// with a text. Deterministic for a seed; one launch at a time in a process. Understood by
// AddressSanitizer and ThreadSanitizer.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include "kernels/warps/warp_team.h"

namespace specd {

class EmulatedBlock;

// Satisfies the needs of WarpTeam; made by RunEmulatedBlock.
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
  void Sync() const;
  void SyncWarp() const;
  // Lanes do not look at the same time: a warp that let each see for itself would part here.
  int32_t Peek(const int32_t* word) const {
    return static_cast<int32_t>(Shuffle(static_cast<uint32_t>(*word), 0));
  }
  uint64_t Peek(const uint64_t* word) const {
    const uint64_t value = *word;
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

  void* SharedMemory() const;  // of the warp

  EmulatedBlock* block_;
  int32_t index_;
};

struct EmulationOptions {
  int32_t num_threads = 32;  // a multiple of 32
  uint64_t schedule_seed = 0;
  // The place of this block in a launch of several.
  int32_t block = 0;
  int32_t num_blocks = 1;
};

// Runs `body` in every thread of one block. Returns an empty string, or what went wrong; after an
// error no thread goes on.
std::string RunEmulatedBlock(const EmulationOptions& options,
                             const std::function<void(EmulatedThread)>& body);

// The same for all blocks of a launch. How many are under way at the same time, in which order they
// start, and which goes on for how long is drawn from the seed too. Blocks may not wait for one
// another, so each of these is something that a GPU could do.
std::string RunEmulatedBlocks(const EmulationOptions& options,
                              const std::function<void(EmulatedThread)>& body);

using EmulatedTeam = WarpTeam<EmulatedThread>;

// What shared memory holds before anybody writes it: NaNs as floats, -1 as integers.
inline constexpr unsigned char kPoison = 0xFF;

}  // namespace specd
