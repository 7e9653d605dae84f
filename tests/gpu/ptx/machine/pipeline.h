// Pipeline keeps the time of one warp as if it had its processor to itself: one instruction goes in
// a cycle, and each waits for the registers that it reads.
//
// ptxas orders the instructions between two branches anew, so that they wait together. Here such a
// stretch takes as long as its instructions go, or as its longest chain of results. Loads and
// stores keep their order with earlier stores, as far as registers do not say more.
//
// A weak access finds a sector again in the cache of its processor, which here has room for all
// that a block asks for, and waits for a sector that is on its way. The latencies are estimates.
// They have not been compared with published measurements: Luo et al., "Benchmarking and Dissecting
// the Nvidia Hopper GPU Architecture through Microbenchmarking" (IPDPS 2024), and Abdelkhalik et
// al., "Demystifying the Nvidia Ampere Architecture" (HPEC 2022).
#pragma once

#include <cstdint>
#include <vector>

#include "tests/gpu/ptx/machine/profile.h"

namespace specd::ptx {

class Pipeline {
 public:
  // `near` has what the cache of the warp's processor holds; the warps of a block share it.
  Pipeline(Profiler* profiler, NearCache* near) : profiler_(*profiler), near_(*near) {}

  const ChainPoint& now() const { return now_; }

  void Enter(const Function& function);
  void Leave();
  // Of the calls that have ended.
  const FunctionTimes& times() const { return times_; }

  void Issue(const Instruction& instruction, uint32_t lanes);
  // The access of the instruction that was issued last.
  void Access(const Instruction& instruction, const WarpAccess& access);
  // The same for an atomic operation, which waits for earlier ones at its address.
  void Atomic(const Instruction& instruction, const WarpAccess& access);

  // From here on the warp sees what others wrote: the processor's cache forgets what it holds.
  void Acquire() { near_.Clear(); }

  // The warp has waited for others, of whom the last came at that time.
  void WaitUntil(const ChainPoint& last, bool is_cluster);

 private:
  struct Call {
    const Function* function = nullptr;
    uint64_t begin = 0;           // in cycles
    std::vector<uint64_t> ready;  // when each value is there
  };

  void SetReady(const Instruction& instruction, uint64_t cycles);
  void BeginStretch();
  void KeepMemoryOrder(bool is_store);

  Profiler& profiler_;
  NearCache& near_;
  ChainPoint now_;
  uint64_t issued_ = 0;  // the cycle of the last instruction
  uint64_t stretch_begin_ = 0;
  uint64_t num_issued_ = 0;  // since then
  uint64_t last_load_ = 0;
  uint64_t last_store_ = 0;
  std::vector<Call> calls_;
  FunctionTimes times_;
};

}  // namespace specd::ptx
