// PTX ISA, "Data Movement and Conversion Instructions: mov, cvta, mapa" and "Special Registers".
#include "tests/gpu/ptx/machine/move_opcodes.h"

#include <fmt/format.h>

#include "tests/gpu/ptx/machine/access.h"
#include "tests/gpu/ptx/machine/lane_functions.h"
#include "tests/gpu/ptx/machine/warp.h"

namespace specd::ptx {

namespace {

template <typename Slot>
struct Same {
  Slot operator()(Slot a) const { return a; }
};

// The instruction's result in each lane is function(lane).
template <typename Slot, typename LaneFunction>
void SetLanes(Frame& frame, const Instruction& instruction, uint32_t lanes,
              const LaneFunction& function) {
  Slot* const result = frame.At<Slot>(instruction.result);
  ForEachLane(lanes, [&](uint32_t lane) { result[lane] = function(lane); });
}

// "mov" with a vector as its destination: a half of the source goes to access.values[half].
template <typename Half, typename Whole>
void Unpack(Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const auto* const source = frame.Source<Whole>(instruction.sources[0]);
  ForEachLane(lanes, [&](uint32_t lane) {
    const Whole whole = source[lane];
    for (int half = 0; half < 2; ++half) {
      const int32_t to = instruction.access.values[half];
      const auto value = static_cast<Half>(whole >> (8 * sizeof(Half) * half));
      if (to != kNoOperand) frame.At<uint32_t>(to)[lane] = value;
    }
  });
}

// "Special Registers": "%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%cluster_ctarank",
// "%cluster_nctarank".
enum class Special {
  kThread,
  kThreads,
  kBlock,
  kBlocks,
  kLane,
  kRank,
  kRanks,
};
template <Special kSpecial>
void ReadSpecial(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const LaunchShape& shape = warp.launch().shape;
  SetLanes<uint32_t>(frame, instruction, lanes, [&](uint32_t lane) -> uint32_t {
    switch (kSpecial) {
      case Special::kThread:
        return warp.index() * kLanes + lane;
      case Special::kThreads:
        return shape.block;
      case Special::kBlock:
        return warp.block().index;
      case Special::kBlocks:
        return shape.grid;
      case Special::kLane:
        return lane;
      case Special::kRank:
        return warp.block().rank;
      case Special::kRanks:
        return shape.cluster;
    }
  });
}

// "Generic Addressing": the windows of shared and local memory in the generic space. That of global
// memory begins at 0.
uint64_t WindowOf(Warp& warp, Space space, uint32_t lane) {
  if (space == Space::kShared) return warp.block().shared.address();
  return space == Space::kLocal ? reinterpret_cast<uint64_t>(warp.memory().LocalOf(lane)) : 0;
}
// "cvta"
template <Space kSpace, bool kToSpace>
void ConvertAddress(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const auto* const source = frame.Source<uint64_t>(instruction.sources[0]);
  SetLanes<uint64_t>(frame, instruction, lanes, [&](uint32_t lane) {
    const uint64_t window = WindowOf(warp, kSpace, lane);
    return kToSpace ? source[lane] - window : source[lane] + window;
  });
}

// The block of the cluster that mapa names. Ends the launch if there is none.
Block* BlockOfRank(Warp& warp, const Frame& frame, const Instruction& instruction, uint32_t lane) {
  const auto& blocks = warp.block().cluster->blocks;
  const uint32_t rank = frame.Source<uint32_t>(instruction.sources[1])[lane];
  if (rank < blocks.size()) return blocks[rank].get();
  warp.Fail(frame, instruction, 1u << lane,
            fmt::format("rank {} of a cluster of {} blocks", rank, blocks.size()));
  return nullptr;
}

}  // namespace

// "mov"
void MoveWord(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  LaneHandler<Same<uint32_t>, uint32_t, uint32_t>::Run(warp, frame, instruction, lanes);
}
void MoveDoubleword(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  LaneHandler<Same<uint64_t>, uint64_t, uint64_t>::Run(warp, frame, instruction, lanes);
}

// "mov" with a vector as its source
void PackHalves(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const auto* const low = frame.Source<uint32_t>(instruction.sources[0]);
  const auto* const high = frame.Source<uint32_t>(instruction.sources[1]);
  SetLanes<uint32_t>(frame, instruction, lanes,
                     [&](uint32_t lane) { return (low[lane] & 0xFFFFu) | high[lane] << 16; });
}
void PackWords(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const auto* const low = frame.Source<uint32_t>(instruction.sources[0]);
  const auto* const high = frame.Source<uint32_t>(instruction.sources[1]);
  SetLanes<uint64_t>(frame, instruction, lanes,
                     [&](uint32_t lane) { return low[lane] | uint64_t{high[lane]} << 32; });
}
void UnpackHalves(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  Unpack<uint16_t, uint32_t>(frame, instruction, lanes);
}
void UnpackWords(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  Unpack<uint32_t, uint64_t>(frame, instruction, lanes);
}

Handler FindSpecialRegister(std::string_view name) {
  if (name == "%tid.x") return &ReadSpecial<Special::kThread>;
  if (name == "%ntid.x") return &ReadSpecial<Special::kThreads>;
  if (name == "%ctaid.x") return &ReadSpecial<Special::kBlock>;
  if (name == "%nctaid.x") return &ReadSpecial<Special::kBlocks>;
  if (name == "%laneid") return &ReadSpecial<Special::kLane>;
  if (name == "%cluster_ctarank") return &ReadSpecial<Special::kRank>;
  return name == "%cluster_nctarank" ? &ReadSpecial<Special::kRanks> : nullptr;
}

void MoveLocalAddress(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  SetLanes<uint64_t>(frame, instruction, lanes, [&](uint32_t) {
    return static_cast<uint64_t>(frame.locals_offset + instruction.immediate);
  });
}
void MoveParamAddress(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  SetLanes<uint64_t>(frame, instruction, lanes, [&](uint32_t) {
    return static_cast<uint64_t>(frame.params_offset + instruction.immediate);
  });
}

Handler FindAddressConversion(Space space, bool is_to_space) {
  switch (space) {
    case Space::kLocal:
      return is_to_space ? &ConvertAddress<Space::kLocal, true>
                         : &ConvertAddress<Space::kLocal, false>;
    case Space::kShared:
      return is_to_space ? &ConvertAddress<Space::kShared, true>
                         : &ConvertAddress<Space::kShared, false>;
    case Space::kGlobal:
      return &MoveDoubleword;
    case Space::kGeneric:
    case Space::kParam:
      break;
  }
  return nullptr;
}

// "mapa"
void MapSharedAddress(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const auto* const source = frame.Source<uint32_t>(instruction.sources[0]);
  SetLanes<uint32_t>(frame, instruction, lanes, [&](uint32_t lane) -> uint32_t {
    const Block* const block = BlockOfRank(warp, frame, instruction, lane);
    if (block == nullptr) return 0;
    return source[lane] | static_cast<uint32_t>(block->rank + 1) << kRankShift;
  });
}
void MapGenericAddress(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const auto* const source = frame.Source<uint64_t>(instruction.sources[0]);
  SetLanes<uint64_t>(frame, instruction, lanes, [&](uint32_t lane) -> uint64_t {
    const Block* const block = BlockOfRank(warp, frame, instruction, lane);
    if (block == nullptr) return 0;
    return source[lane] - warp.block().shared.address() + block->shared.address();
  });
}

}  // namespace specd::ptx
