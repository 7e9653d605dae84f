// PTX ISA, "Data Movement and Conversion Instructions: shfl.sync" and "Parallel Synchronization and
// Communication Instructions".
#include "tests/gpu/ptx/machine/together_opcodes.h"

#include <fmt/format.h>

#include <functional>

#include "tests/gpu/ptx/machine/combining.h"
#include "tests/gpu/ptx/machine/warp.h"

namespace specd::ptx {

namespace {

enum class ShuffleMode { kUp, kDown, kButterfly, kIndex };

// The lane that a lane reads, and whether that lies in its segment. "shfl.sync" has this in C.
struct ShuffleSource {
  uint32_t lane;
  bool is_in_segment;
};
template <ShuffleMode kMode>
ShuffleSource SourceOf(uint32_t lane, uint32_t operand, uint32_t clamp_and_mask) {
  const auto own = static_cast<int32_t>(lane);
  const auto by = static_cast<int32_t>(operand & 31);
  const auto clamp = static_cast<int32_t>(clamp_and_mask & 31);
  const auto mask = static_cast<int32_t>(clamp_and_mask >> 8 & 31);
  const int32_t limit = (own & mask) | (clamp & ~mask);
  const int32_t first = own & mask;
  switch (kMode) {
    case ShuffleMode::kUp:
      return {static_cast<uint32_t>(own - by), own - by >= limit};
    case ShuffleMode::kDown:
      return {static_cast<uint32_t>(own + by), own + by <= limit};
    case ShuffleMode::kButterfly:
      return {static_cast<uint32_t>(own ^ by), (own ^ by) <= limit};
    case ShuffleMode::kIndex:
      break;
  }
  const int32_t from = first | (by & ~mask);
  return {static_cast<uint32_t>(from), from <= limit};
}

// "shfl.sync"
template <ShuffleMode kMode>
void Shuffle(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const auto* const values = frame.Source<uint32_t>(instruction.sources[0]);
  const auto* const operands = frame.Source<uint32_t>(instruction.sources[1]);
  const auto* const clamps = frame.Source<uint32_t>(instruction.sources[2]);
  uint32_t read[kLanes] = {};
  uint32_t in_segment = 0;
  ForEachLane(lanes, [&](uint32_t lane) {
    const ShuffleSource source = SourceOf<kMode>(lane, operands[lane], clamps[lane]);
    const uint32_t from = source.is_in_segment ? source.lane : lane;
    if ((lanes >> from & 1) == 0) {
      warp.Fail(frame, instruction, 1u << lane, fmt::format("lane {} is not here", from));
    }
    read[lane] = values[from];
    in_segment |= (source.is_in_segment ? 1u : 0u) << lane;
  });
  auto* const results = frame.At<uint32_t>(instruction.result);
  ForEachLane(lanes, [&](uint32_t lane) { results[lane] = read[lane]; });
  if (instruction.second_result != kNoOperand) {
    frame.SetPredicate(instruction.second_result, lanes, in_segment);
  }
}

// "vote.sync"
uint32_t PredicateOf(const Frame& frame, const Instruction& instruction, uint32_t lanes) {
  return frame.Predicate(instruction.sources[0]) & lanes;
}
void VoteAll(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const bool all = PredicateOf(frame, instruction, lanes) == lanes;
  frame.SetPredicate(instruction.result, lanes, all ? kAllLanes : 0);
}
void VoteAny(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const bool any = PredicateOf(frame, instruction, lanes) != 0;
  frame.SetPredicate(instruction.result, lanes, any ? kAllLanes : 0);
}
void VoteUni(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const uint32_t votes = PredicateOf(frame, instruction, lanes);
  frame.SetPredicate(instruction.result, lanes, votes == 0 || votes == lanes ? kAllLanes : 0);
}
void VoteBallot(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const uint32_t votes = PredicateOf(frame, instruction, lanes);
  auto* const results = frame.At<uint32_t>(instruction.result);
  ForEachLane(lanes, [&](uint32_t lane) { results[lane] = votes; });
}

// "redux.sync"
template <typename Value, typename Function>
void Reduce(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const auto* const values = frame.Source<Value>(instruction.sources[0]);
  Value reduced = values[__builtin_ctz(lanes)];
  ForEachLane(lanes & (lanes - 1),
              [&](uint32_t lane) { reduced = Function{}(reduced, values[lane]); });
  auto* const results = frame.At<Value>(instruction.result);
  ForEachLane(lanes, [&](uint32_t lane) { results[lane] = reduced; });
}

// The barrier's clocks are those of all warps that came.
void Arrive(Warp& warp, Barrier* barrier) {
  warp.launch().races.Arrive(&warp.clock(), &barrier->joined);
  barrier->last.JoinLater(warp.now());
  barrier->Arrive();
}

}  // namespace

Handler FindShuffle(std::string_view mode) {
  if (mode == "up") return &Shuffle<ShuffleMode::kUp>;
  if (mode == "down") return &Shuffle<ShuffleMode::kDown>;
  if (mode == "bfly") return &Shuffle<ShuffleMode::kButterfly>;
  return mode == "idx" ? &Shuffle<ShuffleMode::kIndex> : nullptr;
}

Handler FindVote(std::string_view mode) {
  if (mode == "all") return &VoteAll;
  if (mode == "any") return &VoteAny;
  if (mode == "uni") return &VoteUni;
  return mode == "ballot" ? &VoteBallot : nullptr;
}

Handler FindReduction(std::string_view op_and_type) {
  if (op_and_type == "add.s32" || op_and_type == "add.u32") return &Reduce<uint32_t, std::plus<>>;
  if (op_and_type == "max.s32") return &Reduce<int32_t, Max>;
  if (op_and_type == "max.u32") return &Reduce<uint32_t, Max>;
  if (op_and_type == "min.s32") return &Reduce<int32_t, Min>;
  if (op_and_type == "min.u32") return &Reduce<uint32_t, Min>;
  if (op_and_type == "and.b32") return &Reduce<uint32_t, std::bit_and<>>;
  if (op_and_type == "or.b32") return &Reduce<uint32_t, std::bit_or<>>;
  return op_and_type == "xor.b32" ? &Reduce<uint32_t, std::bit_xor<>> : nullptr;
}

// "bar.warp.sync"
void SyncWarp(Warp& warp, Frame&, const Instruction&, uint32_t) {
  warp.launch().races.SyncLanes(&warp.clock());
}

// "bar, barrier": the warp takes what the barrier joined when it goes on (Warp::Run).
void SyncBlock(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  Barrier& barrier = warp.block().barrier;
  if (barrier.num_ended > 0) {
    return warp.Fail(frame, instruction, lanes, "a warp of the block has ended and does not come");
  }
  const uint32_t phase = barrier.phase;
  Arrive(warp, &barrier);
  warp.WaitFor(&barrier, phase);
}

// "barrier.cluster"
void ArriveAtCluster(Warp& warp, Frame&, const Instruction&, uint32_t) {
  Barrier& barrier = warp.block().cluster->barrier;
  warp.cluster_phase = barrier.phase;
  Arrive(warp, &barrier);
}
void WaitForCluster(Warp& warp, Frame&, const Instruction&, uint32_t) {
  warp.WaitFor(&warp.block().cluster->barrier, warp.cluster_phase);
}

// "membar, fence"
void Fence(Warp& warp, Frame&, const Instruction& instruction, uint32_t lanes) {
  warp.launch().races.Fence(&warp.clock(), lanes, instruction.access.scope);
  if (warp.pipeline() != nullptr) warp.pipeline()->Acquire();
  warp.EndTurnSoon();
}

void AwaitLaunchBefore(Warp& warp, Frame&, const Instruction&, uint32_t) { warp.is_early = false; }

void DoNothing(Warp&, Frame&, const Instruction&, uint32_t) {}

}  // namespace specd::ptx
