#include "daemon/trace/row_hash.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace specd {
namespace {

constexpr size_t kLanes = 8;
constexpr size_t kStripeBytes = 8 * kLanes;
constexpr size_t kBlockStripes = 16;

// Numbers without a pattern: the first digits of the fractions of square roots of primes (FIPS
// 180-4, initial values of SHA-512), made odd where they are not.
alignas(32) constexpr uint64_t kKeys[kLanes] = {
    0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
// An odd step of the keys, so that no two stripes of a block have the same.
constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

// The finaliser of SplitMix64 (Steele et al. 2014): every bit of x moves about half the bits.
uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct alignas(32) Lanes {
  uint64_t sum[kLanes];
};

void AddPlain(const std::byte* at, size_t num_stripes, Lanes* lanes) {
  uint64_t turn = 0;
  for (size_t j = 0; j < num_stripes; ++j, at += kStripeBytes, turn += kStep) {
    uint64_t words[kLanes];
    std::memcpy(words, at, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) {
      const uint64_t keyed = words[i] ^ (kKeys[i] + turn);
      lanes->sum[i] += (keyed & 0xffffffff) * (keyed >> 32);
      lanes->sum[i ^ 1] += words[i];
    }
  }
}

#if defined(__x86_64__)
// The same numbers, four lanes at a time.
__attribute__((target("avx2"))) void AddAvx2(const std::byte* at, size_t num_stripes,
                                             Lanes* lanes) {
  auto* const sums = reinterpret_cast<__m256i*>(lanes->sum);
  const auto* const keys = reinterpret_cast<const __m256i*>(kKeys);
  __m256i sum[2] = {_mm256_load_si256(sums), _mm256_load_si256(sums + 1)};
  __m256i turned[2] = {_mm256_load_si256(keys), _mm256_load_si256(keys + 1)};
  const __m256i step = _mm256_set1_epi64x(static_cast<int64_t>(kStep));
  for (size_t j = 0; j < num_stripes; ++j, at += kStripeBytes) {
    for (size_t half = 0; half < 2; ++half) {
      const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at) + half);
      const __m256i keyed = _mm256_xor_si256(words, turned[half]);
      const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
      // Each word goes to the neighbour of its lane.
      const __m256i swapped = _mm256_shuffle_epi32(words, 0x4e);
      sum[half] = _mm256_add_epi64(sum[half], _mm256_add_epi64(product, swapped));
      turned[half] = _mm256_add_epi64(turned[half], step);
    }
  }
  _mm256_store_si256(sums, sum[0]);
  _mm256_store_si256(sums + 1, sum[1]);
}
#endif

using AddStripes = void (*)(const std::byte*, size_t, Lanes*);

AddStripes ChooseAddStripes() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return AddAvx2;
#endif
  return AddPlain;
}

void Mix(Lanes* lanes) {
  for (size_t i = 0; i < kLanes; ++i) {
    lanes->sum[i] = (lanes->sum[i] ^ (lanes->sum[i] >> 47) ^ kKeys[i]) * 0x9e3779b1;
  }
}

uint64_t Hash(std::span<const std::byte> bytes, AddStripes add) {
  Lanes lanes;
  std::memcpy(lanes.sum, kKeys, sizeof(lanes.sum));
  const std::byte* at = bytes.data();
  for (size_t left = bytes.size() / kStripeBytes; left > 0;) {
    const size_t count = left < kBlockStripes ? left : kBlockStripes;
    add(at, count, &lanes);
    Mix(&lanes);
    at += count * kStripeBytes;
    left -= count;
  }
  if (const size_t rest = bytes.size() % kStripeBytes; rest != 0) {
    std::byte last[kStripeBytes] = {};
    std::memcpy(last, at, rest);
    add(last, 1, &lanes);
    Mix(&lanes);
  }
  uint64_t hash = MixBits(bytes.size() + 1);
  for (size_t i = 0; i < kLanes; ++i) hash = MixBits(hash + lanes.sum[i]) + kKeys[i];
  return hash == 0 ? 1 : hash;
}

}  // namespace

uint64_t RowHash(std::span<const std::byte> bytes) {
  static const AddStripes kAdd = ChooseAddStripes();
  return Hash(bytes, kAdd);
}

uint64_t PlainRowHash(std::span<const std::byte> bytes) { return Hash(bytes, AddPlain); }

}  // namespace specd
