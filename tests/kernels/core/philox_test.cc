#include "kernels/core/philox.h"

#include <doctest/doctest.h>

#include <set>

namespace specd {
namespace {

TEST_SUITE("unit") {
  // Random123, kat_vectors, "philox4x32 10".
  TEST_CASE("Philox4x32-10 gives the published known answers") {
    struct Vector {
      PhiloxWords counter;
      uint32_t key[2];
      PhiloxWords expected;
    };
    const Vector vectors[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {0xffffffff, 0xffffffff},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (const Vector& vector : vectors) {
      const PhiloxWords words = Philox4x32(vector.counter, vector.key[0], vector.key[1]);
      for (int i = 0; i < 4; ++i) CHECK(words.x[i] == vector.expected.x[i]);
    }
  }

  TEST_CASE("a coin takes its key and counter words in the order of the contract") {
    // Key (low, high), counter (position, base, node, purpose): the third known answer again.
    const KeyedCoins coins(0x299f31d0a4093822u);
    const CoinKey key{0x243f6a88, 0x85a308d3, 0x13198a2e, static_cast<Purpose>(0x03707344)};
    CHECK(coins(key) == 0xd16cfe0994fdccebu >> 11);
    CHECK(coins(key) < uint64_t{1} << 53);
    CHECK(CoinToDouble(uint64_t{1} << 52) == 0.5);
    CHECK(CoinToDouble((uint64_t{1} << 53) - 1) < 1.0);
  }

  TEST_CASE("every part of a key and of the seed changes the coin") {
    const CoinKey key{3, 2, 1, Purpose::kAccept};
    std::set<uint64_t> coins{KeyedCoins(7)(key), KeyedCoins(8)(key),
                             KeyedCoins(7 + (uint64_t{1} << 32))(key)};
    CoinKey other = key;
    other.position = 4;
    coins.insert(KeyedCoins(7)(other));
    other = key;
    other.round_base = 3;
    coins.insert(KeyedCoins(7)(other));
    other = key;
    other.node = 2;
    coins.insert(KeyedCoins(7)(other));
    other = key;
    other.purpose = Purpose::kResidual;
    coins.insert(KeyedCoins(7)(other));
    CHECK(coins.size() == 7);
  }
}

}  // namespace
}  // namespace specd
