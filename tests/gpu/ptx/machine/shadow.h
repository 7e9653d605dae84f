// ShadowCell remembers who touched a word of memory last, for the checks of races.
//
// A cell stands for 4 bytes. It keeps the last write and two reads; a third read that is not
// ordered behind one of them replaces the older one. A race is therefore never invented, and seldom
// missed.
#pragma once

#include <cstdint>

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

// Which of a cell's 4 bytes an access touched, and whether it was strong (not Order::kWeak).
struct Touch {
  Moment moment;
  uint8_t bytes = 0;
  bool is_strong = false;
};

struct ShadowCell {
  Moment write;
  Moment reads[2];
  uint16_t generation = 0;  // of the launch that the rest belongs to
  uint16_t marks = 0;       // 5 bits each for the write and the reads

  // 0: the write; 1 and 2: the reads.
  uint8_t BytesOf(int which) const { return marks >> (5 * which) & 15; }
  bool IsStrong(int which) const { return (marks >> (5 * which) & 16) != 0; }
  void Mark(int which, uint8_t bytes, bool is_strong) {
    const int shift = 5 * which;
    marks =
        static_cast<uint16_t>((marks & ~(31 << shift)) | (bytes | (is_strong ? 16 : 0)) << shift);
  }
};
static_assert(sizeof(ShadowCell) == 16);

}  // namespace specd::ptx
