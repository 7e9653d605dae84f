// A warp fetches rows in words of 16 bytes. A row may begin anywhere: every element is right, and
// nothing after the row is touched.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/core/elements.h"
#include "tests/gpu/emulation/emulated_block.h"
#include "tests/support/guarded_bytes.h"

namespace specd {
namespace {

// The row as a warp has it in its registers.
std::vector<float> ReadByWarp(const RowView& row, uint32_t steps) {
  std::vector<float> elements(NumTiles(row.vocab_size) * kTileSize, 0.0f);
  const std::string error = RunEmulatedBlock({.num_threads = 32}, [&](EmulatedThread thread) {
    EmulatedTeam team(thread);
    for (int32_t t = 0; t < NumTiles(row.vocab_size); ++t) {
      EmulatedTeam::Tile tile;
      team.Load(row, t, steps, Identity{}, &tile);
      team.Store(Identity{}, tile, kTileSize, elements.data() + t * kTileSize);
    }
  });
  REQUIRE(error == "");
  return elements;
}

TEST_SUITE("unit") {
  TEST_CASE("a warp brings every element of a row that begins anywhere, and nothing else") {
    std::mt19937_64 random(61);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      // So many sizes that a row begins at every multiple of its element.
      for (int32_t vocab_size : {1, 5, 255, 256, 257, 2047}) {
        for (int32_t more = 0; more < 9; ++more) {
          for (const uint32_t steps : {kAllSteps, 0xA5u}) {
            const RowView row{nullptr, dtype, 2 * kTileSize + vocab_size + more, {}};
            const auto size_bytes = static_cast<size_t>(row.vocab_size * SizeBytes(dtype));
            const GuardedBytes memory(size_bytes, more % 3 * SizeBytes(dtype));
            for (size_t i = 0; i < size_bytes; ++i) memory.data()[i] = static_cast<char>(random());
            RowView placed = row;
            placed.data = memory.data();
            const std::vector<float> elements = ReadByWarp(placed, steps);
            CAPTURE(static_cast<int>(dtype));
            CAPTURE(row.vocab_size);
            CAPTURE(steps);
            for (int32_t i = 0; i < static_cast<int32_t>(elements.size()); ++i) {
              const bool here = i < row.vocab_size && (steps >> (i % kTileSize / kLanes) & 1u) != 0;
              const float expected = here ? LoadElement(placed, i) : -kInfinity;
              CAPTURE(i);
              REQUIRE(BitsOf(elements[i]) == BitsOf(expected));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace specd
