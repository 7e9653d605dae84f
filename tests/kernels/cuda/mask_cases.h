// The mask cases give random masks for tests of teams, and find bit by bit which steps two masks
// leave. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/bodies/tiles.h"

namespace specd {

// `needed`: the steps of a tile in which two masks leave an id, which a team has to read. `bits`:
// the steps in which both masks have a bit; a team need read no others. The second mask may be
// null.
struct MaskedSteps {
  uint32_t needed = 0;
  uint32_t bits = 0;

  MaskedSteps(const uint32_t* mask, const uint32_t* other, int32_t first_id, int32_t count) {
    uint32_t with_bits[2] = {};
    for (int32_t e = 0; e < count; ++e) {
      const int32_t id = first_id + e;
      const uint32_t step = 1u << (e / kLanes);
      const uint32_t words[2] = {mask != nullptr ? mask[id / 32] : ~0u,
                                 other != nullptr ? other[id / 32] : ~0u};
      if (((words[0] & words[1]) >> id % 32 & 1) != 0) needed |= step;
      for (int i = 0; i < 2; ++i) with_bits[i] |= words[i] != 0 ? step : 0;
    }
    bits = with_bits[0] & with_bits[1];
  }
};

// Exactly the words of a row, so AddressSanitizer finds a read of more.
inline std::vector<uint32_t> RandomMask(std::mt19937_64& random, int32_t vocab_size) {
  std::vector<uint32_t> words((vocab_size + 31) / 32);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  // Some steps are allowed as a whole, or not at all.
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t of_step = (i / (kLanes / 32)) * 7 % 5;
    if (of_step < 2) words[i] = of_step == 0 ? 0 : ~0u;
  }
  return words;
}

}  // namespace specd
