// ByteSet is a set of byte values, for the transitions of grammar automata.
//
// A value type of 32 bytes; every operation is constant time.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

namespace specd::grammar {

// The bits that are set. Processors of the oldest kind that specd runs on have no instruction for
// it, and the compiler's function for those is slow.
constexpr uint32_t CountBits(uint64_t bits) {
  bits -= bits >> 1 & 0x5555555555555555u;
  bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
  bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
  return static_cast<uint32_t>(bits * 0x0101010101010101u >> 56);
}

class ByteSet {
 public:
  constexpr ByteSet() = default;

  // Both ends are in the set.
  static constexpr ByteSet Range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (int byte = first; byte <= last; ++byte) set.Add(static_cast<uint8_t>(byte));
    return set;
  }
  static constexpr ByteSet One(uint8_t byte) { return Range(byte, byte); }
  static constexpr ByteSet All() { return Range(0, 255); }

  constexpr void Add(uint8_t byte) { words_[byte / 64] |= uint64_t{1} << byte % 64; }
  constexpr void Remove(uint8_t byte) { words_[byte / 64] &= ~(uint64_t{1} << byte % 64); }
  constexpr bool Has(uint8_t byte) const { return (words_[byte / 64] >> byte % 64 & 1) != 0; }
  constexpr bool IsEmpty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  constexpr int Size() const {
    int size = 0;
    for (const uint64_t word : words_) size += static_cast<int>(CountBits(word));
    return size;
  }
  // The number of smaller bytes in the set.
  constexpr uint32_t SizeBelow(uint8_t byte) const {
    uint32_t size = CountBits(words_[byte / 64] & ((uint64_t{1} << byte % 64) - 1));
    for (size_t word = 0; word < byte / 64; ++word) size += CountBits(words_[word]);
    return size;
  }
  // The smallest byte from `first` on, or -1. REQUIRES: first <= 256.
  constexpr int FirstFrom(uint32_t first) const {
    for (size_t word = first / 64; word < words_.size(); ++word) {
      const uint64_t from = word == first / 64 ? ~uint64_t{0} << first % 64 : ~uint64_t{0};
      if (const uint64_t bits = words_[word] & from; bits != 0) {
        return static_cast<int>(word * 64) + std::countr_zero(bits);
      }
    }
    return -1;
  }

  // The smallest byte. REQUIRES: the set is not empty.
  constexpr uint8_t First() const {
    size_t word = 0;
    while (words_[word] == 0) ++word;
    return static_cast<uint8_t>(word * 64 + static_cast<size_t>(std::countr_zero(words_[word])));
  }

  constexpr ByteSet operator|(const ByteSet& other) const {
    ByteSet set;
    for (size_t i = 0; i < words_.size(); ++i) set.words_[i] = words_[i] | other.words_[i];
    return set;
  }
  constexpr ByteSet operator&(const ByteSet& other) const {
    ByteSet set;
    for (size_t i = 0; i < words_.size(); ++i) set.words_[i] = words_[i] & other.words_[i];
    return set;
  }
  constexpr ByteSet operator~() const {
    ByteSet set;
    for (size_t i = 0; i < words_.size(); ++i) set.words_[i] = ~words_[i];
    return set;
  }

  friend constexpr bool operator==(const ByteSet&, const ByteSet&) = default;
  friend constexpr auto operator<=>(const ByteSet&, const ByteSet&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const ByteSet& set) {
    return H::combine(std::move(state), set.words_);
  }

 private:
  std::array<uint64_t, 4> words_ = {};
};

}  // namespace specd::grammar
