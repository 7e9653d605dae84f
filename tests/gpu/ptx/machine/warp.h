// Warp runs the instructions of 32 lanes, which go in lock step wherever they are at one place.
//
// Where lanes part, the group at the lowest place goes on, so that groups meet again. An
// instruction that brings lanes together (shuffle, vote, barrier) waits for all lanes of its mask;
// if some cannot come, that is an error. A call waits until the warp's other lanes come to it or
// cannot: inside the callee they could not be met.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/ptx/machine/block.h"
#include "tests/gpu/ptx/machine/frame.h"
#include "tests/gpu/ptx/machine/launch_state.h"
#include "tests/gpu/ptx/machine/pipeline.h"
#include "tests/gpu/ptx/machine/warp_memory.h"

namespace specd::ptx {

class Warp {
 public:
  // `index` is the warp's in its block.
  Warp(LaunchState* launch, Block* block, uint32_t index);
  Warp(const Warp&) = delete;
  Warp& operator=(const Warp&) = delete;
  ~Warp();

  // Runs until the warp waits, has ended, did something forbidden, or its turn is over.
  void Run(int32_t num_instructions);

  bool has_ended() const { return num_frames_ == 0; }
  bool CanRun() const {
    return !has_ended() && (waits_for_ == nullptr || waits_for_->phase != awaited_phase_);
  }
  // Where the warp stands, for errors.
  std::string Describe() const;

  // For the handlers of instructions.
  LaunchState& launch() { return launch_; }
  Block& block() { return block_; }
  WarpMemory& memory() { return *memory_; }
  WarpClock& clock() { return clock_; }
  uint32_t index() const { return index_; }
  // Null if the launch is not profiled.
  Pipeline* pipeline() { return pipeline_.get(); }
  ChainPoint now() const { return pipeline_ == nullptr ? ChainPoint{} : pipeline_->now(); }
  uint32_t lanes() const { return lanes_; }
  void EndTurnSoon() { turn_ = std::min<int32_t>(turn_, launch_.Random(8)); }
  void WaitFor(const Barrier* barrier, uint32_t phase) {
    waits_for_ = barrier;
    awaited_phase_ = phase;
  }
  uint32_t cluster_phase = 0;  // in which the warp arrived last
  bool is_early;               // the launch before may still run
  // Ends the launch. The error names the kernel and where the warp is.
  void Fail(const Frame& frame, const Instruction& instruction, uint32_t lanes,
            std::string_view what);

 private:
  Frame& top() { return frames_[num_frames_ - 1]; }
  Frame* Push(const Function& function, uint32_t lanes, int32_t params_offset);
  void Pop();
  void Step(Frame& frame);
  void Branch(Frame& frame, const Instruction& instruction, uint32_t lanes);
  void Return(Frame& frame, uint32_t lanes);
  void Call(Frame& frame, const Instruction& instruction, uint32_t lanes);
  void Enter(Frame& caller, const Instruction& instruction, const Function& callee, uint32_t lanes);
  void FinishCall(Frame& caller, const Frame& callee);
  void ComeTogether(Frame& frame, const Instruction& instruction, uint32_t lanes);
  // Lets other lanes of the call go on. False if there are none.
  bool Regroup(Frame& frame);

  LaunchState& launch_;
  Block& block_;
  const uint32_t index_;
  const uint32_t lanes_;  // that exist
  std::unique_ptr<WarpMemory> memory_;
  WarpClock clock_;
  std::unique_ptr<Pipeline> pipeline_;
  std::vector<Frame> frames_;  // those behind num_frames_ wait for another use
  size_t num_frames_ = 0;
  size_t registers_used_ = 0;
  size_t local_used_ = 0;
  int32_t turn_ = 0;  // instructions left
  const Barrier* waits_for_ = nullptr;
  uint32_t awaited_phase_ = 0;
};

}  // namespace specd::ptx
