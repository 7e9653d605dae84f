// The handlers of instructions that bring lanes or warps together: shfl.sync, vote.sync,
// redux.sync, bar.warp.sync, bar.sync, barrier.cluster and fences. PTX ISA, "Data Movement and
// Conversion Instructions: shfl.sync" and "Parallel Synchronization and Communication
// Instructions".
//
// The warp calls those of lanes when all lanes of the mask have come.
#pragma once

#include <string_view>

#include "tests/gpu/ptx/machine/frame.h"
#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

// "up", "down", "bfly" or "idx"; null for another mode.
Handler FindShuffle(std::string_view mode);
// "all", "any", "uni" or "ballot"
Handler FindVote(std::string_view mode);
// "add.s32", "min.u32", "and.b32" and so on
Handler FindReduction(std::string_view op_and_type);

void SyncWarp(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
void SyncBlock(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
void ArriveAtCluster(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
void WaitForCluster(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);

void Fence(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
// griddepcontrol.wait. The machine runs launches one after another.
void AwaitLaunchBefore(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
// griddepcontrol.launch_dependents
void DoNothing(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);

}  // namespace specd::ptx
