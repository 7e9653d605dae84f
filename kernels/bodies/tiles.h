// Tiles: the fixed cut of a row that every sum, prefix and draw follows (CONTRACT §9).
//
// A row is cut into tiles of 2,048 elements whatever processor works on it. Inside a tile, element
// e belongs to virtual lane e mod 256; a lane adds its 8 terms in order, then lanes are added as a
// tree. Tiles are combined in tile order. Statistics of tiles lie in a workspace that the caller
// gives, so that tiles may be computed anywhere, in any order, without changing a bit.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"
#include "kernels/core/types.h"

namespace specd {

inline constexpr int32_t kLanes = 256;
inline constexpr int32_t kStepsPerTile = 8;
inline constexpr int32_t kTileSize = kLanes * kStepsPerTile;

SPECD_INLINE constexpr int32_t NumTiles(int32_t vocab_size) {
  return (vocab_size + kTileSize - 1) / kTileSize;
}

// What one pass over a tile leaves behind.
struct TileStats {
  float max = 0;  // NaN if the tile holds a NaN
  float sum = 0;  // of the weights 2^((l - max) * scale); 0 where max is not finite
};

// Memory for one sequence's decisions; nothing in it outlives VerifyChain. Each array has
// NumTiles(vocab_size) entries.
struct ChainWorkspace {
  TileStats* target = nullptr;
  TileStats* draft = nullptr;
  float* residual = nullptr;
};

// The bytes of such a workspace, and its layout over memory aligned to 8.
SPECD_INLINE constexpr int64_t ChainWorkspaceBytes(int32_t vocab_size) {
  const int64_t bytes_per_tile = 2 * int64_t{sizeof(TileStats)} + int64_t{sizeof(float)};
  return (NumTiles(vocab_size) * bytes_per_tile + 7) / 8 * 8;
}

SPECD_INLINE ChainWorkspace ChainWorkspaceAt(void* memory, int32_t vocab_size) {
  ChainWorkspace workspace;
  workspace.target = static_cast<TileStats*>(memory);
  workspace.draft = workspace.target + NumTiles(vocab_size);
  workspace.residual = reinterpret_cast<float*>(workspace.draft + NumTiles(vocab_size));
  return workspace;
}

}  // namespace specd
