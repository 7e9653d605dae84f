// Tiles: the fixed cut of a row that every sum, prefix and draw follows (CONTRACT §9).
//
// A row is cut into tiles of 2,048 elements whatever processor works on it. Inside a tile, element
// e belongs to virtual lane e mod 256; a lane adds its 8 terms in order, then lanes are added as a
// tree. The 256 elements that give each lane its next term are a step; the largest of them is the
// step's peak, by which a pass knows which steps it need not read. Tiles are combined in tile
// order. Statistics of tiles lie in a workspace that the caller gives, so that tiles may be
// computed anywhere, in any order, without changing a bit.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"
#include "kernels/core/types.h"

namespace specd {

inline constexpr int32_t kLanes = 256;
inline constexpr int32_t kStepsPerTile = 8;
inline constexpr int32_t kTileSize = kLanes * kStepsPerTile;

inline constexpr uint32_t kAllSteps = (1u << kStepsPerTile) - 1;  // bit s: step s of a tile

SPECD_INLINE constexpr int32_t NumTiles(int32_t vocab_size) {
  return (vocab_size + kTileSize - 1) / kTileSize;
}

// What one pass over a row leaves behind: short rows, a number for each tile or step. A team reads
// them as it reads a row.
struct RowStats {
  float* maxima = nullptr;  // of the tiles; NaN if a tile holds a NaN
  // Of a tile's weights 2^((l - maximum) * scale); 0 where that is not finite or not asked for.
  float* sums = nullptr;
  float* peaks = nullptr;  // of the steps: kStepsPerTile of each tile
};

// What becomes of a place of a draft (judge_place.h).
enum class Verdict : int32_t {
  kUnknown,
  kStands,     // its draft token does
  kEnds,       // the draft ends here or its token falls; another is known
  kBadTarget,  // CONTRACT §6
  kBadDraft,
  kFalls,  // its token does; the one that replaces it takes passes that this team leaves
  kLeft,   // it takes such passes to say
};
struct PlaceVerdict {
  Verdict verdict = Verdict::kUnknown;
  TokenId token = kNoToken;     // where it kEnds
  int32_t empty_residuals = 0;  // on the way to that
};

// What is known of a row that was read ahead (read_ahead.h), once all its tiles are there.
struct AheadFacts {
  float max = 0;       // NaN if it holds a NaN
  PlaceVerdict place;  // of a target row that was judged
  double mass = 0;     // where the sums of its tiles were asked for, and max is finite
  int32_t reserved[2] = {};
};
static_assert(sizeof(AheadFacts) == 32);

// Elements that were counted, and what they amount to: themselves, or their integer weights.
struct Tally {
  uint64_t count = 0;
  uint64_t amount = 0;
};

// A few elements of a row, in ascending order of ids: at most one tile of them. The arrays have
// room for one tile more: a row that changes between counting and listing must not overrun them.
inline constexpr int32_t kListMax = kTileSize;
inline constexpr int32_t kListRoom = kListMax + kTileSize;
struct ElementList {
  float* values = nullptr;
  TokenId* ids = nullptr;
};

// The same for whoever reads no more than some steps of a row, which it lists too (narrow_list.h).
inline constexpr int32_t kNarrowListMax = 512;
inline constexpr int32_t kNarrowStepsMax = 128;
struct NarrowList {
  ElementList elements;
  int32_t* steps = nullptr;  // their numbers in the row, ascending
};

// Where the facts of a row that was read ahead lie, the numbers of its tiles, and room to list a
// few of its elements. No facts: it was not read ahead.
struct AheadRead {
  AheadFacts* facts = nullptr;
  RowStats stats;
  NarrowList list;
};

// Memory for reading one row. The arrays of tiles have NumTiles(vocab_size) entries.
struct RowWorkspace {
  RowStats stats;
  AheadRead ahead;  // where the row's first pass has been made already: what it left
  Tally* tallies = nullptr;
  ElementList list;
};

// Memory for one sequence's decisions; nothing in it outlives the task.
struct TaskWorkspace {
  // Where rows are read before they are asked for: what their passes left (read_ahead.h).
  char* ahead = nullptr;
  RowWorkspace target;
  RowWorkspace draft;
  float* residual = nullptr;  // one mass for each tile
  // What is kept of each place: a FallenPlace (chain_rows.h) or, by block verification, a
  // BlockPlace.
  void* places = nullptr;
};

// The most that a place needs there.
inline constexpr int64_t kPlaceBytes = 128;

namespace internal {

// Hands out consecutive pieces of a block, each aligned to 16. Without a block it only counts.
class Carver {
 public:
  SPECD_INLINE explicit constexpr Carver(char* memory) : memory_(memory) {}

  template <typename Value>
  SPECD_INLINE constexpr Value* Take(int64_t count) {
    char* piece = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (count * int64_t{sizeof(Value)} + 15) / 16 * 16;
    return reinterpret_cast<Value*>(piece);
  }
  SPECD_INLINE constexpr int64_t used() const { return used_; }

 private:
  char* memory_;
  int64_t used_ = 0;
};

SPECD_INLINE RowWorkspace CarveRow(Carver* carver, int32_t num_tiles) {
  RowWorkspace row;
  row.stats.maxima = carver->Take<float>(num_tiles);
  row.stats.sums = carver->Take<float>(num_tiles);
  row.stats.peaks = carver->Take<float>(int64_t{num_tiles} * kStepsPerTile);
  row.tallies = carver->Take<Tally>(num_tiles);
  row.list.values = carver->Take<float>(kListRoom);
  row.list.ids = carver->Take<TokenId>(kListRoom);
  return row;
}

SPECD_INLINE TaskWorkspace Carve(Carver* carver, int32_t vocab_size, int32_t max_draft) {
  const int32_t num_tiles = NumTiles(vocab_size);
  TaskWorkspace workspace;
  workspace.target = CarveRow(carver, num_tiles);
  workspace.draft = CarveRow(carver, num_tiles);
  workspace.residual = carver->Take<float>(num_tiles);
  workspace.places = carver->Take<char>((max_draft + 1) * kPlaceBytes);
  return workspace;
}

}  // namespace internal

// The bytes of such a workspace, and its layout over memory aligned to 16.
SPECD_INLINE int64_t TaskWorkspaceBytes(int32_t vocab_size, int32_t max_draft) {
  internal::Carver carver(nullptr);
  internal::Carve(&carver, vocab_size, max_draft);
  return carver.used();
}

SPECD_INLINE TaskWorkspace TaskWorkspaceAt(void* memory, int32_t vocab_size, int32_t max_draft) {
  internal::Carver carver(static_cast<char*>(memory));
  return internal::Carve(&carver, vocab_size, max_draft);
}

}  // namespace specd
