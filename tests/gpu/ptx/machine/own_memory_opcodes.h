// The handlers of ld and st for memory that a lane has to itself: local memory and params.
//
// They are the most frequent accesses. Nothing races there, so that these handlers check alignment,
// bounds and written bytes alone. memory_opcodes.h has the other accesses.
#pragma once

#include "tests/gpu/ptx/machine/frame.h"
#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

// REQUIRES: the access is one of Space::kLocal or Space::kParam, and complete.
Handler FindOwnLoad(const MemoryAccess& access);
Handler FindOwnStore(const MemoryAccess& access);

}  // namespace specd::ptx
