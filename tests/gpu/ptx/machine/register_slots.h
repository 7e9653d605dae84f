// AssignSlots gives each register of a function a place in the memory of a call.
//
// A slot holds the register's value in all 32 lanes: 4 or 8 bytes for each. Registers that live in
// one basic block share slots, so that a call's memory fits the cache. Predicates are words of 32
// bits, one for each lane; words 0 and 1 are the constants false and true.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/gpu/ptx/machine/syntax.h"

namespace specd::ptx {

inline constexpr int32_t kNoSlot = -1;

struct RegisterSlots {
  std::vector<int32_t> slots;  // of each register: an offset in bytes, or a predicate's index
  int32_t size_bytes = 0;
  int32_t num_predicates = 2;
};

// A register that a statement names.
struct RegisterUse {
  int reg;
  bool is_definition;
};
// Reads come before writes.
std::vector<RegisterUse> UsesOf(const Statement& statement);

// Whether stores alone read a register, as the value that they store. A register that nothing reads
// is one of these.
std::vector<bool> FindStoredAlone(const FunctionText& function);

RegisterSlots AssignSlots(const FunctionText& function);

}  // namespace specd::ptx
