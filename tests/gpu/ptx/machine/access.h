// Access finds and checks the memory of one lane's access.
//
//   Place place;
//   if (FindPlace(warp, frame, instruction, lane, &place)) Use(place.bytes);
#pragma once

#include "tests/gpu/ptx/machine/program.h"
#include "tests/gpu/ptx/machine/shadow.h"
#include "tests/gpu/ptx/machine/warp.h"

namespace specd::ptx {

// An address of .shared::cluster memory is an offset in the own block's memory, or in that of the
// block whose rank + 1 stands above this bit (mapa).
inline constexpr int kRankShift = 24;

// Memory of one access, with what is known of it.
struct Place {
  std::byte* bytes = nullptr;
  uint64_t address = 0;         // for errors and for releases
  ShadowCell* cells = nullptr;  // none for local memory, which a lane has to itself
  uint8_t* marks = nullptr;     // of written bytes; none for global memory
};

// Ends the launch and returns false if the lane may not touch that memory.
bool FindPlace(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lane,
               Place* place);

// Whether another lane's access races with this one. Ends the launch if so. `after` is what the
// lane writes, or null if it reads or computes. A lane that writes the bits that are there already
// does not race with lanes of its own warp: JudgeRow (kernels/warps/judge_row.h) publishes facts a
// second time.
bool Races(Warp& warp, const Frame& frame, const Instruction& instruction, uint32_t lane,
           const Place& place, bool is_write, const std::byte* after = nullptr);
// Remembers the access, for the others.
void NoteAccess(Warp& warp, const Instruction& instruction, uint32_t lane, const Place& place,
                bool is_write);

}  // namespace specd::ptx
