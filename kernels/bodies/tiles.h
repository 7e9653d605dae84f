// Tiles are the fixed cut of a row for every sum, prefix and draw (CONTRACT §9).
//
// Every processor cuts a row into tiles of 2,048 elements. Inside a tile, element e belongs to
// virtual lane e mod 256. A lane adds its 8 terms in order, then lanes are added as a tree. The 256
// elements that give each lane its next term are a step. The largest of them is the step's peak; it
// tells a pass which steps it need not read. Tiles are combined in tile order. The statistics of
// tiles lie in a workspace of the caller's. Tiles may therefore be computed anywhere, in any order,
// without changing a bit.
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

// The results of one pass over a row: short rows with a number for each tile or step. A team reads
// them like a row.
struct RowStats {
  float* maxima = nullptr;  // the tiles' maxima; NaN if a tile holds a NaN
  // The sums of each tile's weights 2^((l - maximum) * scale); 0 if the maximum is not finite or no
  // sum was requested.
  float* sums = nullptr;
  float* peaks = nullptr;  // kStepsPerTile for each tile
};

// Sums of each tile's weights as those of RowStats, with a scale of their own. Null: no sums.
struct ScaledSums {
  float scale = 0;
  float* sums = nullptr;
};

// The verdict about one place of a draft (judge_place.h).
enum class Verdict : int32_t {
  kUnknown,
  kStands,     // the draft token stands
  kEnds,       // the draft ends here or its token falls; another token is known
  kBadTarget,  // CONTRACT §6
  kBadDraft,
  kFalls,  // the draft token falls; its replacement takes passes that this team leaves
  kLeft,   // the verdict takes passes that this team leaves
};
struct PlaceVerdict {
  Verdict verdict = Verdict::kUnknown;
  TokenId token = kNoToken;          // the token of kEnds
  int32_t empty_residuals = 0;       // the empty residuals before the verdict
  RowFault fault = RowFault::kNone;  // of kBadTarget and kBadDraft
};

// The facts of a row that was read ahead (read_ahead.h), once all its tiles are read.
struct AheadFacts {
  float max = 0;         // NaN if the row holds a NaN
  PlaceVerdict place;    // the verdict of a target row that was judged
  float rough_mass = 0;  // the mass within kRoughly of itself, or 0
  double mass = 0;       // 0 without kAheadMass, or if max is not finite
};
static_assert(sizeof(AheadFacts) == 32);

// A sum of floats in any order, as a share of itself.
inline constexpr double kRoughly = 0x1p-18;

// Counted elements and their amount: their number, or the sum of their integer weights.
struct Tally {
  uint64_t count = 0;
  uint64_t amount = 0;
};

// A few elements of a row, in ascending order of ids: at most one tile of them. The arrays have
// room for one tile more, so that a row that changes between counting and listing cannot overrun
// them.
inline constexpr int32_t kListMax = kTileSize;
inline constexpr int32_t kListRoom = kListMax + kTileSize;
struct ElementList {
  float* values = nullptr;
  TokenId* ids = nullptr;
};

// The list of a team that reads only some steps of a row; the steps are listed too (narrow_list.h).
inline constexpr int32_t kNarrowListMax = 512;
inline constexpr int32_t kNarrowStepsMax = 128;
struct NarrowList {
  ElementList elements;
  int32_t* steps = nullptr;  // the steps' numbers in the row, ascending
};

// The facts of a row that was read ahead, the numbers of its tiles, and room to list a few of its
// elements. If `facts` is null, the row was not read ahead.
struct AheadRead {
  AheadFacts* facts = nullptr;
  RowStats stats;
  NarrowList list;
};

// Memory for reading one row. The arrays of tiles have NumTiles(vocab_size) entries.
struct RowWorkspace {
  RowStats stats;
  AheadRead ahead;  // the results of the row's first pass, if it was read ahead
  Tally* tallies = nullptr;
  ElementList list;
};

// Memory for one sequence's decisions. Its contents do not outlive the task.
struct TaskWorkspace {
  // The results of passes over rows that were read ahead (read_ahead.h); null: no row was.
  char* ahead = nullptr;
  RowWorkspace target;
  RowWorkspace draft;
  float* residual = nullptr;  // one mass for each tile
  float* raw_sums = nullptr;  // one for each tile of a target row (ChainRows::AskForRawSums)
  TokenId* drawn = nullptr;   // what one group of a team draws for all
  // The facts of each place: a FallenPlace (chain_rows.h) or, for block verification, a BlockPlace.
  void* places = nullptr;
};

// The most bytes of a place.
inline constexpr int64_t kPlaceBytes = 128;

namespace internal {

// Gives out consecutive pieces of a block, each aligned to 16. Without a block, Carver only counts.
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
  workspace.raw_sums = carver->Take<float>(num_tiles);
  workspace.drawn = carver->Take<TokenId>(1);
  workspace.places = carver->Take<char>((max_draft + 1) * kPlaceBytes);
  return workspace;
}

}  // namespace internal

// The bytes of a TaskWorkspace, and its layout over memory aligned to 16.
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
