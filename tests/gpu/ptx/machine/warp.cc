#include "tests/gpu/ptx/machine/warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace specd::ptx {

namespace {

constexpr size_t kMostFrames = 64;
constexpr size_t kFrameAlignment = 64;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

uint32_t LanesOf(const LaunchState& launch, uint32_t index) {
  const uint32_t left = launch.shape.block - index * kLanes;
  return left >= kLanes ? kAllLanes : (1u << left) - 1;
}

}  // namespace

Warp::Warp(LaunchState* launch, Block* block, uint32_t index)
    : is_early(launch->shape.is_early),
      launch_(*launch),
      block_(*block),
      index_(index),
      lanes_(LanesOf(*launch, index)),
      memory_(TakeWarpMemory()),
      clock_(launch->races.NewWarp(block->index * launch->warps_per_block() + index)) {
  if (launch->options.profiler != nullptr) {
    pipeline_ = std::make_unique<Pipeline>(launch->options.profiler, &block->near);
  }
  frames_.reserve(kMostFrames);
  const Function& entry = launch_.entry;
  local_used_ = RoundUp(static_cast<size_t>(entry.param_bytes), 16);
  ForEachLane(lanes_, [&](uint32_t lane) {
    std::memcpy(memory_->LocalOf(lane), launch_.params.data(), launch_.params.size());
    std::memset(memory_->MarksOf(lane), 1, local_used_);
  });
  Push(entry, lanes_, 0);
}

Warp::~Warp() { GiveWarpMemoryBack(std::move(memory_)); }

Frame* Warp::Push(const Function& function, uint32_t lanes, int32_t params_offset) {
  if (num_frames_ == frames_.size()) frames_.emplace_back();
  Frame& frame = frames_[num_frames_++];
  if (pipeline_ != nullptr) pipeline_->Enter(function);
  frame.function = &function;
  frame.registers = memory_->registers() + registers_used_;
  frame.registers_before = registers_used_;
  const auto register_bytes = static_cast<size_t>(function.register_bytes);
  const size_t predicate_bytes = static_cast<size_t>(function.num_predicates) * sizeof(uint32_t);
  frame.predicates = reinterpret_cast<uint32_t*>(frame.registers + register_bytes);
  registers_used_ += RoundUp(register_bytes + predicate_bytes, kFrameAlignment);
  frame.params_offset = params_offset;
  frame.local_before = local_used_;
  local_used_ = RoundUp(local_used_, 16);
  frame.locals_offset = static_cast<int32_t>(local_used_);
  local_used_ += static_cast<size_t>(function.local_bytes);
  frame.carry = 0;
  frame.lanes = frame.current = lanes;
  frame.pc = 0;
  frame.next_meeting = kNowhere;
  frame.calls_alone = false;
  frame.others.clear();
  frame.waiting.clear();
  frame.deferred.clear();
  if (registers_used_ > kRegisterArenaBytes || local_used_ > kLocalBytes) return nullptr;
  if (launch_.options.poisons_registers) {
    const auto pattern = static_cast<int>(0xC5 + launch_.options.seed);
    std::memset(frame.registers, pattern, register_bytes + predicate_bytes);
  }
  frame.predicates[0] = 0;
  frame.predicates[1] = kAllLanes;
  ForEachLane(lanes, [&](uint32_t lane) {
    std::memset(memory_->MarksOf(lane) + frame.locals_offset, 0,
                static_cast<size_t>(function.local_bytes));
  });
  return &frame;
}

void Warp::Pop() {
  const Frame& frame = top();
  registers_used_ = frame.registers_before;
  local_used_ = frame.local_before;
  if (pipeline_ != nullptr) pipeline_->Leave();
  --num_frames_;
}

void Warp::Run(int32_t num_instructions) {
  if (waits_for_ != nullptr) {
    launch_.races.Leave(&clock_, waits_for_->completed);
    if (pipeline_ != nullptr) {
      pipeline_->WaitUntil(waits_for_->completed_last, waits_for_ != &block_.barrier);
    }
  }
  waits_for_ = nullptr;
  turn_ = num_instructions;
  while (num_frames_ > 0 && waits_for_ == nullptr && turn_ > 0 && !launch_.has_failed()) {
    --turn_;
    Step(top());
  }
}

void Warp::Step(Frame& frame) {
  if (frame.pc >= frame.next_meeting) {
    frame.others.push_back({frame.pc, frame.current});
    Regroup(frame);
  }
  const Instruction& instruction = frame.function->code[static_cast<size_t>(frame.pc)];
  ++launch_.num_instructions;
  uint32_t lanes = frame.current;
  if (instruction.guard != kNoOperand) lanes &= frame.Predicate(instruction.guard);
  if (pipeline_ != nullptr) pipeline_->Issue(instruction, frame.current);
  switch (instruction.flow) {
    case Flow::kNext:
      ++frame.pc;
      if (lanes != 0) instruction.run(*this, frame, instruction, lanes);
      return;
    case Flow::kBranch:
      return Branch(frame, instruction, lanes);
    case Flow::kReturn:
      return Return(frame, lanes);
    case Flow::kCall:
      return Call(frame, instruction, lanes);
    case Flow::kTogether:
      return ComeTogether(frame, instruction, lanes);
    case Flow::kTrap:
      ++frame.pc;
      if (lanes != 0) Fail(frame, instruction, lanes, "a trap");
      return;
  }
}

void Warp::Branch(Frame& frame, const Instruction& instruction, uint32_t lanes) {
  if (lanes == frame.current) {
    frame.pc = instruction.target;
  } else if (lanes == 0) {
    ++frame.pc;
  } else {
    frame.others.push_back({instruction.target, lanes});
    frame.others.push_back({frame.pc + 1, frame.current & ~lanes});
    Regroup(frame);
  }
}

void Warp::Return(Frame& frame, uint32_t lanes) {
  frame.current &= ~lanes;
  if (frame.current != 0) {
    ++frame.pc;
    return;
  }
  if (Regroup(frame) || launch_.has_failed()) return;
  if (num_frames_ > 1) FinishCall(frames_[num_frames_ - 2], frame);
  Pop();
}

bool Warp::Regroup(Frame& frame) {
  frame.calls_alone = false;
  if (frame.others.empty() && !frame.deferred.empty()) {
    frame.others.swap(frame.deferred);
    frame.calls_alone = true;
  }
  if (frame.others.empty()) {
    frame.current = 0;
    if (frame.waiting.empty()) return false;
    const Fragment& stuck = frame.waiting.front();
    Fail(frame, frame.function->code[static_cast<size_t>(stuck.pc)], stuck.lanes,
         "lanes wait for others that cannot come");
    return false;
  }
  frame.pc = kNowhere;
  for (const Fragment& fragment : frame.others) frame.pc = std::min(frame.pc, fragment.pc);
  frame.current = 0;
  frame.next_meeting = kNowhere;
  std::erase_if(frame.others, [&](const Fragment& fragment) {
    if (fragment.pc == frame.pc) {
      frame.current |= fragment.lanes;
      return true;
    }
    frame.next_meeting = std::min(frame.next_meeting, fragment.pc);
    return false;
  });
  return true;
}

void Warp::Call(Frame& frame, const Instruction& instruction, uint32_t lanes) {
  if (lanes == 0) {
    ++frame.pc;
    return;
  }
  if (!frame.calls_alone && !(frame.others.empty() && frame.deferred.empty())) {
    frame.deferred.push_back({frame.pc, frame.current});
    Regroup(frame);
    return;
  }
  const Function* callee = instruction.callee;
  if (callee == nullptr) {
    // The lanes that call the function of the first one; the others come here again.
    const auto* const addresses = frame.Source<uint64_t>(instruction.sources[0]);
    const uint64_t first = addresses[__builtin_ctz(lanes)];
    uint32_t same = 0;
    ForEachLane(lanes,
                [&](uint32_t lane) { same |= (addresses[lane] == first ? 1u : 0u) << lane; });
    if (same != lanes) {
      frame.others.push_back({frame.pc, lanes & ~same});
      frame.others.push_back({frame.pc + 1, frame.current & ~lanes});
      std::erase_if(frame.others, [](const Fragment& fragment) { return fragment.lanes == 0; });
      frame.current = lanes = same;
      frame.next_meeting = frame.pc;
    }
    callee = frame.function->module->FindFunction(first);
  }
  if (callee == nullptr || !callee->has_body) {
    return Fail(frame, instruction, lanes, "a call of a function that is not there");
  }
  frame.calls_alone = false;
  Enter(frame, instruction, *callee, lanes);
}

void Warp::Enter(Frame& caller, const Instruction& instruction, const Function& callee,
                 uint32_t lanes) {
  if (instruction.arguments.size() != callee.params.size() || num_frames_ >= kMostFrames) {
    return Fail(caller, instruction, lanes, "a call with other params, or one that is too deep");
  }
  const size_t before = local_used_;
  const size_t params = RoundUp(local_used_, 16);
  local_used_ = params + RoundUp(static_cast<size_t>(callee.param_bytes), 16);
  if (local_used_ > kLocalBytes) return Fail(caller, instruction, lanes, "local memory is full");
  ForEachLane(lanes, [&](uint32_t lane) {
    std::byte* const local = memory_->LocalOf(lane);
    for (size_t i = 0; i < callee.params.size(); ++i) {
      std::memcpy(local + params + callee.params[i].offset,
                  local + caller.params_offset + instruction.arguments[i],
                  static_cast<size_t>(callee.params[i].size_bytes));
    }
    std::memset(memory_->MarksOf(lane) + params, 1, local_used_ - params);
  });
  caller.calling = lanes;
  Frame* const frame = Push(callee, lanes, static_cast<int32_t>(params));
  if (frame == nullptr) return Fail(caller, instruction, lanes, "no memory for a call is left");
  frame->local_before = before;
}

void Warp::FinishCall(Frame& caller, const Frame& callee) {
  const Instruction& call = caller.function->code[static_cast<size_t>(caller.pc)];
  ++caller.pc;
  if (call.returned == kNoOperand || callee.function->results.empty()) return;
  const Param& result = callee.function->results[0];
  ForEachLane(caller.calling, [&](uint32_t lane) {
    std::byte* const local = memory_->LocalOf(lane);
    std::memcpy(local + caller.params_offset + call.returned,
                local + callee.params_offset + result.offset,
                static_cast<size_t>(result.size_bytes));
  });
}

void Warp::ComeTogether(Frame& frame, const Instruction& instruction, uint32_t lanes) {
  if (lanes == 0) {
    ++frame.pc;
    return;
  }
  if (lanes != frame.current) {
    return Fail(frame, instruction, lanes, "a guard parts lanes that have to come together");
  }
  uint32_t wanted = lanes_;
  if (instruction.member_mask != kNoOperand) {
    wanted = frame.Source<uint32_t>(instruction.member_mask)[__builtin_ctz(lanes)];
  }
  if ((wanted & lanes) != lanes) {
    return Fail(frame, instruction, lanes, fmt::format("the mask {:08x} lacks a lane", wanted));
  }
  uint32_t here = lanes;
  for (const Fragment& fragment : frame.waiting) {
    if (fragment.pc == frame.pc) here |= fragment.lanes;
  }
  if ((here & wanted) == wanted) {
    std::erase_if(frame.waiting, [&](const Fragment& f) { return f.pc == frame.pc; });
    frame.current = here;
    ++frame.pc;
    instruction.run(*this, frame, instruction, here);
    return;
  }
  if ((frame.lanes & wanted) != wanted) {
    return Fail(frame, instruction, lanes,
                fmt::format("the mask {:08x} names lanes that are not here ({:08x} are)", wanted,
                            frame.lanes));
  }
  frame.waiting.push_back({frame.pc, lanes});
  Regroup(frame);
}

std::string Warp::Describe() const {
  std::string text = fmt::format("block {}, warp {}", block_.index, index_);
  for (size_t i = num_frames_; i-- > 0;) {
    const Frame& frame = frames_[i];
    const auto at = std::min(static_cast<size_t>(frame.pc), frame.function->code.size() - 1);
    text += fmt::format("\n  in {}, about {}:{}", frame.function->name,
                        frame.function->module->file, frame.function->code[at].line);
  }
  return text;
}

void Warp::Fail(const Frame& frame, const Instruction& instruction, uint32_t lanes,
                std::string_view what) {
  if (launch_.has_failed()) return;
  launch_.error = fmt::format("{}:{}: {}: {}; kernel {}, lanes {:08x} of {}",
                              frame.function->module->file, instruction.line, instruction.opcode,
                              what, launch_.entry.name, lanes, Describe());
}

}  // namespace specd::ptx
