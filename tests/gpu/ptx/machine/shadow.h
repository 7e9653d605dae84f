// ShadowCell remembers who touched a word of memory last, for the checks of races.
//
// A cell stands for 4 bytes. It keeps the last write and two reads; a third read that is not
// ordered behind one of them replaces the older one. A race is therefore never invented, and seldom
// missed.
#pragma once

#include <cstdint>

#include "tests/gpu/ptx/machine/scope.h"

namespace specd::ptx {

inline constexpr uint64_t kCellBytes = 4;

// A moment of a lane: warp of the launch (13 bits), clock of the warp (14 bits), lane (5 bits). No
// moment is 0, because clocks begin at 1. The warps are enough for 32 on each of 255 processors.
class Moment {
 public:
  static constexpr uint32_t kMaxWarps = 1u << 13;
  static constexpr uint32_t kMaxClock = (1u << 14) - 1;

  constexpr Moment() = default;
  constexpr Moment(uint32_t warp, uint32_t clock, uint32_t lane)
      : bits_(warp << 19 | clock << 5 | lane) {}

  constexpr bool exists() const { return bits_ != 0; }
  constexpr uint32_t warp() const { return bits_ >> 19; }
  constexpr uint32_t clock() const { return bits_ >> 5 & kMaxClock; }
  constexpr uint32_t lane() const { return bits_ & 31; }
  constexpr bool operator==(const Moment&) const = default;

 private:
  uint32_t bits_ = 0;
};

struct ShadowCell {
  static constexpr uint32_t kMaxGeneration = (1u << 14) - 1;

  Moment write;
  Moment reads[2];
  uint32_t generation : 14 = 0;  // of the launch that the rest belongs to
  uint32_t marks : 18 = 0;       // 6 bits each for the write and the reads: bytes, and the scope

  // 0: the write; 1 and 2: the reads. Bit i of the bytes is byte i of the cell.
  uint8_t BytesOf(int which) const { return marks >> (6 * which) & 15; }
  Scope ScopeOf(int which) const { return static_cast<Scope>(marks >> (6 * which + 4) & 3); }
  void Mark(int which, uint8_t bytes, Scope scope) {
    const int shift = 6 * which;
    const uint32_t mark = bytes | static_cast<uint32_t>(scope) << 4;
    marks = (marks & ~(63u << shift)) | mark << shift;
  }
};
static_assert(sizeof(ShadowCell) == 16);

}  // namespace specd::ptx
