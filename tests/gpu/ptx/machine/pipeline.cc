#include "tests/gpu/ptx/machine/pipeline.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace specd::ptx {

namespace {

constexpr uint64_t kSharedCycles = 29;
constexpr uint64_t kCyclesBetweenAtomics = 2;
constexpr uint64_t kBlockBarrierCycles = 30;
constexpr uint64_t kClusterBarrierCycles = 190;

uint64_t LatencyOf(OpClass op_class) {
  switch (op_class) {
    case OpClass::kFloat:
    case OpClass::kAlu:
    case OpClass::kMultiply:
      return 4;
    case OpClass::kWideAlu:
      return 8;
    case OpClass::kWideMultiply:
      return 16;
    case OpClass::kDivide:
      return 100;
    case OpClass::kDouble:
      return 16;
    case OpClass::kSpecial:
    case OpClass::kConvert:
    case OpClass::kBitCount:
      return 18;
    case OpClass::kMove:
      return 2;
    case OpClass::kControl:
      return 8;
    case OpClass::kExchange:
      return 23;
    case OpClass::kSync:
      return 8;
    case OpClass::kShared:
      return kSharedCycles;
    case OpClass::kLocal:
      return kNearCycles;
    case OpClass::kMemory:
    case OpClass::kAtomic:
      return kL2Cycles;
  }
  return 4;
}

// What no other instruction moves across: branches, barriers, and accesses that order others.
bool EndsStretch(const Instruction& instruction) {
  return (instruction.flow != Flow::kNext && instruction.flow != Flow::kTogether) ||
         instruction.op_class == OpClass::kSync || instruction.op_class == OpClass::kAtomic ||
         instruction.access.order != Order::kWeak;
}

bool TouchesMemory(OpClass op_class) {
  return op_class == OpClass::kMemory || op_class == OpClass::kShared ||
         op_class == OpClass::kLocal || op_class == OpClass::kAtomic;
}

}  // namespace

void Pipeline::Enter(const Function& function) {
  calls_.push_back({.function = &function,
                    .begin = now_.cycles,
                    .ready = std::vector<uint64_t>(static_cast<size_t>(function.num_values))});
}

void Pipeline::Leave() {
  const Call call = std::move(calls_.back());
  calls_.pop_back();
  const bool is_outermost = std::none_of(calls_.begin(), calls_.end(), [&](const Call& caller) {
    return caller.function == call.function;
  });
  if (is_outermost) times_[call.function->name] += now_.cycles - call.begin;
}

void Pipeline::Issue(const Instruction& instruction, uint32_t lanes) {
  profiler_.NoteInstruction(instruction.op_class, static_cast<uint32_t>(std::popcount(lanes)));
  const bool ends_stretch = EndsStretch(instruction);
  if (ends_stretch) BeginStretch();
  issued_ = stretch_begin_;
  const std::vector<uint64_t>& ready = calls_.back().ready;
  for (const int32_t value : instruction.reads) {
    issued_ = std::max(issued_, ready[static_cast<size_t>(value)]);
  }
  if (TouchesMemory(instruction.op_class)) KeepMemoryOrder(instruction.writes.empty());
  ++num_issued_;
  now_.cycles = std::max({now_.cycles, issued_ + 1, stretch_begin_ + num_issued_});
  ++now_.instructions;
  SetReady(instruction, issued_ + LatencyOf(instruction.op_class));
  if (!ends_stretch) return;
  // The next instruction waits for where a branch goes.
  const bool branches = instruction.flow != Flow::kNext && instruction.flow != Flow::kTogether;
  if (branches) now_.cycles = issued_ + LatencyOf(instruction.op_class);
  BeginStretch();
}

void Pipeline::BeginStretch() {
  stretch_begin_ = last_load_ = last_store_ = now_.cycles;
  num_issued_ = 0;
}

// A store stays behind earlier accesses, and a load behind earlier stores: they may share an
// address.
void Pipeline::KeepMemoryOrder(bool is_store) {
  issued_ = std::max(issued_, is_store ? std::max(last_load_, last_store_) : last_store_);
  uint64_t& last = is_store ? last_store_ : last_load_;
  last = std::max(last, issued_);
}

void Pipeline::SetReady(const Instruction& instruction, uint64_t cycles) {
  for (const int32_t value : instruction.writes) {
    calls_.back().ready[static_cast<size_t>(value)] = cycles;
  }
}

void Pipeline::Access(const Instruction& instruction, const WarpAccess& access) {
  const Order order = instruction.access.order;
  const bool is_load = !instruction.writes.empty();
  const uint64_t far =
      profiler_.NoteAccess(access, is_load, issued_, order == Order::kWeak ? &near_ : nullptr);
  if (order == Order::kAcquire || order == Order::kBoth) Acquire();
  const uint64_t own = issued_ + (access.local_lanes != 0 ? kNearCycles : kSharedCycles);
  SetReady(instruction, access.global_lanes == 0 ? own : far);
}

void Pipeline::Atomic(const Instruction& instruction, const WarpAccess& access) {
  Access(instruction, access);
  if (access.global_lanes == 0) return;
  uint64_t last = 0;
  for (uint32_t lanes = access.global_lanes; lanes != 0; lanes &= lanes - 1) {
    uint64_t& done = profiler_.DoneAt(access.addresses[std::countr_zero(lanes)]);
    done = std::max(issued_ + kL2Cycles / 2, done + kCyclesBetweenAtomics);
    last = std::max(last, done);
  }
  SetReady(instruction, last + kL2Cycles / 2);
}

void Pipeline::WaitUntil(const ChainPoint& last, bool is_cluster) {
  now_.JoinLater(last);
  now_.cycles += is_cluster ? kClusterBarrierCycles : kBlockBarrierCycles;
  BeginStretch();
}

}  // namespace specd::ptx
