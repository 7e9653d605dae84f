// The pieces of a task's workspace lie in its memory, aligned, and none lies in another.
#include "kernels/bodies/tiles.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace specd {
namespace {

struct Piece {
  uintptr_t begin;
  int64_t size_bytes;
};

Piece PieceAt(const void* begin, int64_t size_bytes) {
  return {reinterpret_cast<uintptr_t>(begin), size_bytes};
}

// The pieces as their comments in tiles.h describe them.
void AddRow(const RowWorkspace& row, int64_t num_tiles, std::vector<Piece>* pieces) {
  pieces->push_back(PieceAt(row.stats.maxima, num_tiles * 4));
  pieces->push_back(PieceAt(row.stats.sums, num_tiles * 4));
  pieces->push_back(PieceAt(row.stats.peaks, num_tiles * kStepsPerTile * 4));
  pieces->push_back(PieceAt(row.tallies, num_tiles * 16));
  pieces->push_back(PieceAt(row.list.values, kListRoom * 4));
  pieces->push_back(PieceAt(row.list.ids, kListRoom * 4));
}

TEST_SUITE("unit") {
  TEST_CASE("a workspace holds its pieces, aligned to 16, and none lies in another") {
    for (const int32_t vocab_size : {1, kTileSize, kTileSize + 1, 128256, kVocabSizeMax}) {
      for (const int32_t max_draft : {0, 1, 64}) {
        CAPTURE(vocab_size);
        CAPTURE(max_draft);
        const int64_t size_bytes = TaskWorkspaceBytes(vocab_size, max_draft);
        std::vector<unsigned __int128> memory(static_cast<size_t>((size_bytes + 15) / 16));
        const TaskWorkspace workspace = TaskWorkspaceAt(memory.data(), vocab_size, max_draft);
        const int64_t num_tiles = (vocab_size + kTileSize - 1) / kTileSize;
        std::vector<Piece> pieces;
        AddRow(workspace.target, num_tiles, &pieces);
        AddRow(workspace.draft, num_tiles, &pieces);
        pieces.push_back(PieceAt(workspace.residual, num_tiles * 4));
        pieces.push_back(PieceAt(workspace.raw_sums, num_tiles * 4));
        pieces.push_back(PieceAt(workspace.places, (max_draft + 1) * kPlaceBytes));
        std::sort(pieces.begin(), pieces.end(),
                  [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
        uintptr_t end = reinterpret_cast<uintptr_t>(memory.data());
        const uintptr_t end_of_memory = end + static_cast<uintptr_t>(size_bytes);
        for (const Piece& piece : pieces) {
          CHECK(piece.begin % 16 == 0);
          CHECK(piece.begin >= end);
          end = piece.begin + static_cast<uintptr_t>(piece.size_bytes);
        }
        CHECK(end <= end_of_memory);
        CHECK(workspace.ahead == nullptr);
      }
    }
  }
}

}  // namespace
}  // namespace specd
