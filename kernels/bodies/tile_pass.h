// The tile pass: warps share the tiles of all rows that a round may need. On a GPU nearly all time
// goes here, so tiles stay in registers from memory to their numbers; kernels/cuda/
// tile_pass_check.cu holds the compiler to that.
//
// Work goes by place: first the rows of place 0 of all tasks, then those of place 1. A row behind a
// place where the draft is known to end is not read; its parts are only counted. That changes no
// answer, because the decision never comes to it. Nobody waits for anybody else, so any number of
// blocks, in any order, gives the same answers. Thread is that of warp_team.h, and
//
//   block(), num_blocks()       the block's place in the launch
//   SyncWarp()                  waits for the warp; what it wrote before is seen after, in the warp
//   IsLastToArrive(count, n)    counts the warp's arrival; true for the n-th, in the whole warp,
//                               which then sees what the others wrote before they arrived
//   Peek(word)                  a word that others may write meanwhile: one value for the warp
//   Note(value, word), NoteLargest(value, word)   writes it, or raises it to the value
#pragma once

#include "kernels/bodies/chain_rows.h"
#include "kernels/bodies/warp_team.h"
#include "kernels/core/fused_round.h"

namespace specd {

SPECD_INLINE int64_t FusedWorkspaceBytes(int32_t vocab_size, int32_t max_draft) {
  return (ChainWorkspaceBytes(vocab_size, max_draft) + AheadBytes(vocab_size, max_draft) + 15) /
         16 * 16;
}

SPECD_INLINE ChainWorkspace FusedWorkspaceAt(const FusedRound& round, int32_t task) {
  const int32_t vocab_size = round.batch.target.vocab_size;
  char* memory = round.workspaces + task * FusedWorkspaceBytes(vocab_size, round.max_draft);
  ChainWorkspace workspace = ChainWorkspaceAt(memory, vocab_size, round.max_draft);
  workspace.ahead = memory + ChainWorkspaceBytes(vocab_size, round.max_draft);
  return workspace;
}

// A warp as a team of its own.
template <typename Thread>
class LoneWarp {
 public:
  SPECD_INLINE explicit LoneWarp(const Thread& thread) : thread_(thread) {}

  SPECD_INLINE int32_t lane() const { return thread_.lane(); }
  SPECD_INLINE int32_t warp() const { return 0; }
  SPECD_INLINE int32_t num_warps() const { return 1; }
  SPECD_INLINE uint32_t Shuffle(uint32_t value, int32_t source) const {
    return thread_.Shuffle(value, source);
  }
  SPECD_INLINE uint32_t Ballot(bool predicate) const { return thread_.Ballot(predicate); }
  SPECD_INLINE int32_t LargestOfWarp(int32_t value) const { return thread_.LargestOfWarp(value); }
  SPECD_INLINE void Sync() const { thread_.SyncWarp(); }

 private:
  Thread thread_;
};

// How the tiles of a round's rows are shared out: parts of a row, taken in turn.
struct Parts {
  int32_t num_tiles = 0;  // of a row
  int32_t tiles_per_part = 1;
  int32_t parts_per_row = 1;

  // Every arrival costs the warp a round trip to the memory that all share, so parts are larger
  // where there is work for many; up to 8 tiles, and each warp has 4 parts at least.
  SPECD_INLINE Parts(int32_t vocab_size, int32_t num_rows, int32_t num_warps)
      : num_tiles(NumTiles(vocab_size)) {
    const int32_t tiles_per_warp = num_rows * num_tiles / num_warps;
    while (tiles_per_part < 8 && tiles_per_part * 8 <= tiles_per_warp) tiles_per_part *= 2;
    parts_per_row = (num_tiles + tiles_per_part - 1) / tiles_per_part;
  }
};

// Is a row behind the end of its draft? Whoever is last with a row sees at least what those saw who
// left out a part of it.
template <typename Thread>
SPECD_INLINE bool IsBehindEnd(const Thread& thread, const FusedRound& round, const AheadRow& row) {
  const int32_t end_seen = thread.Peek(&round.progress[row.task].end_seen);
  return PlaceOfSlot(row.slot) > kPlacesMax - end_seen;
}

// The work of one warp in a round.
template <typename Thread>
class TilePass {
 public:
  using Team = WarpTeam<LoneWarp<Thread>>;

  SPECD_INLINE TilePass(const Thread& thread, const FusedRound& round)
      : thread_(thread), round_(round), team_(LoneWarp<Thread>(thread)) {}

  // Calls judge(row) for every row that this warp was last with.
  // Without kMayEdit all rows are plain.
  template <bool kMayEdit = true, typename Judge>
  SPECD_HOT void Run(const Judge& judge) {
    // Neighbouring parts go to different blocks, so that a small round is spread over the device.
    const int32_t first = thread_.warp() * thread_.num_blocks() + thread_.block();
    const int32_t num_warps = thread_.num_warps() * thread_.num_blocks();
    const Parts parts(round_.batch.target.vocab_size, round_.num_rows, num_warps);
    const int32_t num_parts = round_.num_rows * parts.parts_per_row;
    for (int32_t part = first; part < num_parts; part += num_warps) {
      const int32_t index = part / parts.parts_per_row;
      const AheadRow row = round_.rows[index];
      if (!IsBehindEnd(thread_, round_, row)) {
        const int32_t begin = part % parts.parts_per_row * parts.tiles_per_part;
        const int32_t end = begin + parts.tiles_per_part;
        for (int32_t t = begin; t < (end < parts.num_tiles ? end : parts.num_tiles); ++t) {
          if (!kMayEdit || (row.flags & kAheadPlain) != 0) {
            ReadPlain(row, t);
          } else {
            if constexpr (kMayEdit) ReadEdited(thread_, round_, row, t);
          }
        }
      }
      if (thread_.IsLastToArrive(&round_.row_arrivals[index], parts.parts_per_row)) judge(row);
    }
  }

 private:
  SPECD_INLINE static RowStats StatsOf(const FusedRound& round, const AheadRow& row) {
    const ChainWorkspace workspace = FusedWorkspaceAt(round, row.task);
    return AheadAt(workspace.ahead, row.slot, round.batch.target.vocab_size).stats;
  }

  SPECD_HOT void ReadPlain(const AheadRow& row, int32_t tile_index) {
    const TensorView& tensor = IsTargetSlot(row.slot) ? round_.batch.target : round_.batch.draft;
    typename Team::Tile tile;
    team_.Load(RowAt(tensor, row.row), tile_index, kAllSteps, Identity{}, &tile);
    NoteTile(team_, tile, row.scale, (row.flags & kAheadSums) != 0, tile_index,
             StatsOf(round_, row));
  }

  // A function of its own: with all that may change an element, a tile does not stay in registers.
  SPECD_BODY static void ReadEdited(const Thread& thread, const FusedRound& round,
                                    const AheadRow& row, int32_t tile_index) {
    Team team{LoneWarp<Thread>(thread)};
    const ChainTask& task = round.batch.tasks[row.task];
    const ChainWorkspace workspace = FusedWorkspaceAt(round, row.task);
    const KeyedCoins coins(task.seed, task.coins, task.num_coins);
    const ChainRows<Team, KeyedCoins> rows(team, round.batch, task, workspace, coins);
    const int32_t place = PlaceOfSlot(row.slot);
    const Row edited = IsTargetSlot(row.slot) ? rows.TargetRow(place) : rows.DraftRow(place);
    ReadTile(team, edited, row.scale, (row.flags & kAheadSums) != 0, tile_index,
             StatsOf(round, row));
  }

  const Thread thread_;
  const FusedRound& round_;
  Team team_;
};

}  // namespace specd
