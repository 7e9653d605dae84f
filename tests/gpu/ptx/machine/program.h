// Module, Function and Instruction are a PTX module as the machine runs it.
//
// LoadModule (module_loader.h) makes them. They are immutable while launches run, except for the
// counts of executed instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/ptx/machine/device_memory.h"
#include "tests/gpu/ptx/machine/op_class.h"
#include "tests/gpu/ptx/machine/scope.h"
#include "tests/gpu/ptx/machine/syntax.h"

namespace specd::ptx {

class Warp;
struct Frame;
struct Function;
struct Instruction;
struct Module;

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

// Runs an instruction for these lanes of the warp's innermost call.
using Handler = void (*)(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);

// How the warp goes on after an instruction.
enum class Flow : uint8_t { kNext, kBranch, kReturn, kCall, kTogether, kTrap };

enum class Space : uint8_t { kGeneric, kGlobal, kLocal, kShared, kParam };

// PTX ISA, "Memory Consistency Model". An access that is not weak has a scope.
enum class Order : uint8_t { kWeak, kRelaxed, kAcquire, kRelease, kBoth };

struct MemoryAccess {
  Space space = Space::kGeneric;
  Order order = Order::kWeak;
  Scope scope = Scope::kNone;  // of a fence too
  uint8_t element_bytes = 0;
  uint8_t num_elements = 1;
  bool is_signed = false;
  uint8_t address_bytes = 0;   // of the base register; 0 if there is none
  uint8_t register_bytes = 0;  // of the value's registers
  // Bit i: a load's element i goes to stores alone, or nowhere. It may be padding of a structure
  // that is copied, so that nothing has written it.
  uint8_t copied = 0;
  int32_t values[4] = {0, 0, 0, 0};

  uint32_t size_bytes() const { return uint32_t{element_bytes} * num_elements; }
};

inline constexpr int32_t kNoOperand = INT32_MIN;
// A predicate that is read inverted.
inline constexpr int32_t kNegated = 1 << 30;

// Slots of operands: an offset into the registers, ~offset into the constants if negative, or the
// index of a predicate. The members that every instruction needs lie in the first line of a cache.
struct alignas(64) Instruction {
  Handler run = nullptr;
  int64_t immediate = 0;
  int32_t guard = kNoOperand;
  int32_t result = kNoOperand;
  int32_t sources[4] = {kNoOperand, kNoOperand, kNoOperand, kNoOperand};
  int32_t target = 0;                // of a branch
  int32_t member_mask = kNoOperand;  // the lanes that come together
  int32_t second_result = kNoOperand;
  Flow flow = Flow::kNext;
  OpClass op_class = OpClass::kControl;

  MemoryAccess access;
  mutable const MemoryRange* last_range = nullptr;  // that the instruction touched
  const Function* callee = nullptr;
  std::vector<int32_t> arguments;  // offsets of params in the caller
  int32_t returned = kNoOperand;   // the offset of the result's param
  int line = 0;
  std::string_view opcode;      // with its modifiers; the name of its entry in a table, if any
  std::vector<int32_t> reads;   // values of the function, for Pipeline
  std::vector<int32_t> writes;  // the same
};
static_assert(offsetof(Instruction, access) <= 64);

struct Function {
  std::string name;
  const Module* module = nullptr;
  bool is_entry = false;
  bool has_body = false;
  std::vector<Param> params;
  std::vector<Param> results;
  std::vector<Instruction> code;  // a return ends it
  std::vector<std::byte> constants;
  int32_t register_bytes = 0;
  int32_t num_predicates = 2;
  int32_t num_values = 0;  // registers and predicates
  int32_t param_bytes = 0;
  int32_t local_bytes = 0;
};

struct Module {
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  std::string file;
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::map<std::string, int32_t> shared;  // offsets
  int32_t shared_bytes = 0;
  Scope narrowest_scope = Scope::kDevice;  // of a strong access or a fence
  std::map<std::string, std::unique_ptr<DeviceBlock>> globals;

  // Null if the module has no such entry.
  const Function* FindEntry(const std::string& name) const;
  // The function that a kernel calls by its address. Null if there is none.
  const Function* FindFunction(uint64_t address) const;
};

}  // namespace specd::ptx
