#include "tests/gpu/ptx/machine/decoding.h"
#include "tests/gpu/ptx/machine/together_opcodes.h"

namespace specd::ptx {

// PTX ISA, "shfl.sync", "vote.sync", "redux.sync", "bar.warp.sync".
bool DecodeTogether(Decoding* decoding) {
  OperandSlots& slots = decoding->slots;
  Modifiers& modifiers = decoding->modifiers;
  Instruction& instruction = decoding->instruction;
  const std::string& base = modifiers.base();
  const bool is_warp_barrier = base == "bar" && modifiers.Take("warp");
  if (base != "shfl" && base != "vote" && base != "redux" && !is_warp_barrier) return false;
  instruction.flow = Flow::kTogether;
  if (!modifiers.Take("sync")) slots.Fail("without .sync it is not known");
  size_t mask = 0;
  if (is_warp_barrier) {
    instruction.run = &SyncWarp;
  } else if (base == "shfl") {
    instruction.run = FindShuffle(modifiers.TakeFirst());
    if (!modifiers.Take("b32")) slots.Fail("the type is .b32");
    instruction.result = slots.Result(slots.At(0), 4);
    if (slots.At(0).second_reg != kNoRegister) {
      instruction.second_result = slots.Guard(slots.At(0).second_reg, false);
    }
    mask = 4;
    for (size_t i = 1; i < mask; ++i) instruction.sources[i - 1] = slots.Source(slots.At(i), 4);
  } else if (base == "vote") {
    const std::string mode = modifiers.TakeFirst();
    instruction.run = FindVote(mode);
    const bool is_ballot = mode == "ballot";
    if (!modifiers.Take(is_ballot ? "b32" : "pred")) slots.Fail("the type is another");
    instruction.result = slots.Result(slots.At(0), is_ballot ? 4 : kPredicateBytes);
    instruction.sources[0] = slots.Source(slots.At(1), kPredicateBytes);
    mask = 2;
  } else {
    const std::string op = modifiers.TakeFirst();
    instruction.run = FindReduction(op + "." + modifiers.TakeFirst());
    instruction.result = slots.Result(slots.At(0), 4);
    instruction.sources[0] = slots.Source(slots.At(1), 4);
    mask = 2;
  }
  if (instruction.run == nullptr) slots.Fail("unknown mode");
  instruction.member_mask = slots.Source(slots.At(mask), 4);
  slots.CheckCount(mask + 1);
  return true;
}

// PTX ISA, "bar, barrier", "barrier.cluster", "membar, fence", "griddepcontrol".
bool DecodeBarrier(Decoding* decoding) {
  OperandSlots& slots = decoding->slots;
  Modifiers& modifiers = decoding->modifiers;
  Instruction& instruction = decoding->instruction;
  const std::string& base = modifiers.base();
  const bool is_block_barrier = base == "bar" && modifiers.Take("sync");
  if (is_block_barrier) {
    instruction.flow = Flow::kTogether;
    instruction.run = &SyncBlock;
    slots.CheckCount(1);
    if (slots.At(0).text != "0") slots.Fail("only barrier 0 of all threads is known");
  } else if (base == "barrier" && modifiers.Take("cluster")) {
    instruction.flow = Flow::kTogether;
    const bool arrives = modifiers.Take("arrive");
    if (!arrives && !modifiers.Take("wait")) slots.Fail("neither .arrive nor .wait");
    // An arrival releases and a wait acquires, if not told otherwise.
    modifiers.Take(arrives ? "release" : "acquire");
    modifiers.Take("aligned");
    instruction.run = arrives ? &ArriveAtCluster : &WaitForCluster;
    slots.CheckCount(0);
  } else if (base == "fence" || base == "membar") {
    // The races of a fence.sc are those of a fence.acq_rel. A membar is a fence.sc.
    if (base == "fence" && !modifiers.Take("acq_rel")) modifiers.Take("sc");
    const bool is_global = base == "membar" && modifiers.Take("gl");
    instruction.access.scope = is_global ? Scope::kDevice : TakeScope(&modifiers);
    if (instruction.access.scope == Scope::kNone) slots.Fail("a fence has a scope");
    instruction.run = &Fence;
  } else if (base == "griddepcontrol") {
    const bool waits = modifiers.Take("wait");
    if (!waits) modifiers.Take("launch_dependents");
    instruction.run = waits ? &AwaitLaunchBefore : &DoNothing;
  } else {
    return false;
  }
  return true;
}

}  // namespace specd::ptx
