// KeyedCoins gives the random coins of a sequence to the kernels, from Philox4x32-10 (Salmon et
// al., SC 2011).
//
// A coin is a pure function of (seed; position, round base, node, purpose), CONTRACT §4. The place
// in a batch, the order of launches and clocks have no effect. Two decisions that must be
// independent have different keys, and a repeated round gets the same coins. Stateless, safe from
// any thread, host and device.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"

namespace specd {

struct PhiloxWords {
  uint32_t x[4];
};

// One call of the generator: 128-bit counter, 64-bit key (word 0 is the low word), ten rounds.
SPECD_INLINE PhiloxWords Philox4x32(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u;
  constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u;  // the golden ratio
  constexpr uint32_t kWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter.x[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter.x[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.x[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.x[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

// The decision that a coin makes. Each purpose has its own sequence of coins. The values are part
// of the contract.
enum class Purpose : uint32_t {
  kSample = 1,    // draws from p itself: plain, bonus, exact_match
  kDraft = 2,     // draws a draft token from q
  kAccept = 3,    // accepts or rejects a draft token
  kResidual = 4,  // draws the replacement of a rejected token
  kTree = 5,      // chooses among proposed children
  kLibrary = 6,   // draws in a library call, outside a sequence: the verifier never meets this coin
};

// The counter of a coin.
struct CoinKey {
  uint32_t position = 0;    // absolute output position of the token that the coin decides
  uint32_t round_base = 0;  // kept output tokens when the round started
  uint32_t node = 0;  // index in the submitted draft; 0 is the root, draft i (from 0) is i + 1
  Purpose purpose = Purpose::kSample;
};

// The coin of a token drawn from p. The coin depends on the position alone, not on the rounds.
// `exact_match` therefore gives the same text with speculation and without.
SPECD_INLINE CoinKey SampleCoin(uint32_t position) {
  return {.position = position, .purpose = Purpose::kSample};
}

// The coin of a library call that draws one token.
SPECD_INLINE CoinKey LibraryCoin(uint32_t position, uint32_t round_base) {
  return {.position = position, .round_base = round_base, .purpose = Purpose::kLibrary};
}

// Coins are 53 random bits, an integer in [0, 2^53).
inline constexpr int kCoinBits = 53;

// The coin as a number in [0, 1): exact in double.
SPECD_INLINE double CoinToDouble(uint64_t coin) {
  return static_cast<double>(coin) * (1.0 / 9007199254740992.0);
}

// A coin that a test or a replay uses instead of the keyed coin.
struct InjectedCoin {
  CoinKey key;
  uint64_t coin = 0;  // below 2^53
};

// The source of coins of one sequence.
class KeyedCoins {
 public:
  SPECD_INLINE explicit KeyedCoins(uint64_t seed, const InjectedCoin* injected = nullptr,
                                   int32_t num_injected = 0)
      : seed_(seed), injected_(injected), num_injected_(num_injected) {}

  SPECD_INLINE uint64_t operator()(const CoinKey& key) const {
    for (int32_t i = 0; i < num_injected_; ++i) {
      const CoinKey& other = injected_[i].key;
      if (other.position == key.position && other.round_base == key.round_base &&
          other.node == key.node && other.purpose == key.purpose) {
        return injected_[i].coin;
      }
    }
    const PhiloxWords words =
        Philox4x32({{key.position, key.round_base, key.node, static_cast<uint32_t>(key.purpose)}},
                   static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32));
    return ((uint64_t{words.x[0]} << 32) | words.x[1]) >> (64 - kCoinBits);
  }

 private:
  uint64_t seed_;
  const InjectedCoin* injected_;
  int32_t num_injected_;
};

}  // namespace specd
