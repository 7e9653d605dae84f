// RowHash gives each row and mask of a traced round a number of 64 bits, near the speed of memory.
//
// Equal bytes have equal hashes in every process and on every machine of the same byte order. The
// hash tells rows apart that differ by an accident, such as one bit; it withstands no attacker, who
// could make two rows with one hash. Pure function, safe from any thread.
//
// The bytes are read in stripes of 64: eight words of eight bytes, one for each of eight lanes. A
// lane adds the product of the two halves of (word xor key), and its neighbour adds the word
// itself, so that no product by 0 hides a word. The lanes do not wait for each other; compilers
// make vectors of them. After each block of 1,024 bytes the lanes are mixed, which gives every
// block another place. The rest is padded with 0 to a stripe, and the size is part of the hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace specd {
namespace internal {

inline constexpr size_t kHashLanes = 8;
inline constexpr size_t kHashStripeBytes = 8 * kHashLanes;
inline constexpr size_t kHashBlockStripes = 16;

// Odd numbers without a pattern: the first digits of the fractions of square roots of primes
// (FIPS 180-4, initial values of SHA-512), made odd.
inline constexpr uint64_t kHashKeys[kHashLanes] = {
    0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

// The finaliser of SplitMix64 (Steele et al. 2014): every bit of x moves about half the bits.
inline constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct HashLanes {
  uint64_t sum[kHashLanes];

  void Add(const std::byte* stripe, uint64_t turn) {
    uint64_t words[kHashLanes];
    std::memcpy(words, stripe, sizeof(words));
    for (size_t i = 0; i < kHashLanes; ++i) {
      // The turn gives equal stripes of one block other products.
      const uint64_t keyed = words[i] ^ (kHashKeys[i] + turn);
      sum[i] += (keyed & 0xffffffff) * (keyed >> 32);
    }
    for (size_t i = 0; i < kHashLanes; ++i) sum[i ^ 1] += words[i];
  }
  void Mix() {
    for (size_t i = 0; i < kHashLanes; ++i) {
      sum[i] = (sum[i] ^ (sum[i] >> 47) ^ kHashKeys[i]) * 0x9e3779b1;
    }
  }
};

}  // namespace internal

// Never 0, which stands for "not computed" in a trace.
inline uint64_t RowHash(std::span<const std::byte> bytes) {
  using namespace internal;
  HashLanes lanes;
  for (size_t i = 0; i < kHashLanes; ++i) lanes.sum[i] = kHashKeys[i];
  const std::byte* at = bytes.data();
  size_t num_stripes = bytes.size() / kHashStripeBytes;
  // Odd steps of the key, so that no two stripes of a block have one.
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  while (num_stripes > 0) {
    const size_t count = num_stripes < kHashBlockStripes ? num_stripes : kHashBlockStripes;
    uint64_t turn = 0;
    for (size_t i = 0; i < count; ++i, at += kHashStripeBytes, turn += kStep) lanes.Add(at, turn);
    lanes.Mix();
    num_stripes -= count;
  }
  if (const size_t rest = bytes.size() % kHashStripeBytes; rest != 0) {
    std::byte last[kHashStripeBytes] = {};
    std::memcpy(last, at, rest);
    lanes.Add(last, 0);
    lanes.Mix();
  }
  uint64_t hash = MixBits(bytes.size() + 1);
  for (size_t i = 0; i < kHashLanes; ++i) hash = MixBits(hash + lanes.sum[i]) + kHashKeys[i];
  return hash == 0 ? 1 : hash;
}

}  // namespace specd
