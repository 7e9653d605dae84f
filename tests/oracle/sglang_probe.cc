// sglang_probe reads lines "seed position column" and prints the hash of each: for
// sglang_hash_oracle.py, which compares it with SGLang's own function.
#include <cstdint>
#include <cstdio>
#include <iostream>

#include "kernels/core/gumbel.h"

int main() {
  uint64_t seed = 0;
  uint32_t position = 0;
  uint32_t column = 0;
  while (std::cin >> seed >> position >> column) {
    std::printf("%u\n", specd::SglangHash(seed, position, column));
  }
  return 0;
}
