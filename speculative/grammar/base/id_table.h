// IdTable finds the number of something that was met before. The things themselves stay with the
// caller, in a list by number.
//
// A hash map would hold each key twice. Abseil's also breaks if memory runs out while it grows;
// here Reserve takes memory and changes nothing if it fails, and Insert cannot fail. Numbers are
// not removed, except all at once.
//
//   uint32_t id = table.Find(hash, [&](uint32_t i) { return list[i] == item; });
//   if (id == IdTable::kNone) {
//     table.Reserve();
//     list.push_back(item);
//     table.Insert(hash, id = list.size() - 1);
//   }
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace specd::grammar {

class IdTable {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  template <typename IsEqual>
  uint32_t Find(uint32_t hash, IsEqual is_equal) const {
    if (cells_.empty()) return kNone;
    for (size_t i = hash & Mask();; i = (i + 1) & Mask()) {
      const Cell& cell = cells_[i];
      if (cell.id == kNone || (cell.hash == hash && is_equal(cell.id))) return cell.id;
    }
  }

  // Makes room for one more.
  void Reserve() {
    if (2 * (size_ + 1) <= cells_.size()) return;
    std::vector<Cell> cells(std::max(kCellsMin, 2 * cells_.size()));
    cells.swap(cells_);
    for (const Cell& cell : cells) {
      if (cell.id != kNone) Place(cell);
    }
  }
  // REQUIRES: Reserve was called since the last Insert.
  void Insert(uint32_t hash, uint32_t id) {
    Place({hash, id});
    ++size_;
  }
  // Keeps the memory, unless it is much more than was needed.
  void Clear() {
    if (size_ == 0) return;
    if (cells_.size() > kCellsMin && cells_.size() > 16 * size_) cells_.resize(kCellsMin);
    std::fill(cells_.begin(), cells_.end(), Cell());
    size_ = 0;
  }

  // Spreads the bits of a 64-bit key.
  static uint64_t Mix(uint64_t key) {
    key *= 0x9E3779B97F4A7C15u;
    key ^= key >> 32;
    key *= 0xD6E8FEB86659FD93u;
    return key ^ key >> 32;
  }

 private:
  struct Cell {
    uint32_t hash = 0;
    uint32_t id = kNone;
  };
  static constexpr size_t kCellsMin = 64;

  size_t Mask() const { return cells_.size() - 1; }
  void Place(Cell cell) {
    size_t i = cell.hash & Mask();
    while (cells_[i].id != kNone) i = (i + 1) & Mask();
    cells_[i] = cell;
  }

  std::vector<Cell> cells_;  // a power of two of them
  size_t size_ = 0;
};

}  // namespace specd::grammar
