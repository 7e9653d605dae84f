// RunTilePass reads the tiles of all rows that a round may need, for the warps of a launch.
//
// A GPU spends nearly all time here, so tiles stay in registers from memory to their numbers;
// kernels/CMakeLists.txt checks that of the compiler. Work goes by place: first the rows of place 0
// of all tasks, then those of place 1. If a node is known to be dead, the parts of later rows are
// only counted, and not read. No answer changes, because the decision never reaches that row. No
// warp waits for another, so any number of blocks, in any order, gives the same answers. Thread is
// the class of warp_team.h with these functions:
//
//   block(), num_blocks()       the block's place in the launch
//   SyncWarp()                  waits for the warp; it then sees the warp's earlier writes
//   Take(count, n)              counts a call of the warp; gives the number of calls before it. The
//                               n-th call sets the count to 0; for kNeverReset none does
//   IsLastToArrive(count, n)    counts the warp's arrival; true for the n-th, in the whole warp,
//                               which then sees the writes of the others before their arrivals
//   Peek(word)                  a word that others may write meanwhile: one value for the warp
//   Look(word), FirstOf(look)   the same in two parts: requests the word, and waits for it
//   Note(value, word)           writes the value to the word
//   NoteBits(bits, word)        sets the bits in the word
//   Shared(value)               lane 0's value, in memory of the warp; the next shared value of
//                               the type replaces it
#pragma once

#include "kernels/bodies/chain_rows.h"
#include "kernels/core/fused_round.h"
#include "kernels/warps/warp_team.h"

namespace specd {

SPECD_INLINE int64_t FusedWorkspaceBytes(int32_t vocab_size, int32_t max_draft) {
  return (TaskWorkspaceBytes(vocab_size, max_draft) + AheadBytes(vocab_size, max_draft) + 15) / 16 *
         16;
}

SPECD_INLINE TaskWorkspace FusedWorkspaceAt(const FusedRound& round, int32_t task) {
  const int32_t vocab_size = round.batch.target.vocab_size;
  char* memory = round.workspaces + task * FusedWorkspaceBytes(vocab_size, round.max_draft);
  TaskWorkspace workspace = TaskWorkspaceAt(memory, vocab_size, round.max_draft);
  workspace.ahead = memory + TaskWorkspaceBytes(vocab_size, round.max_draft);
  return workspace;
}

SPECD_INLINE RowStats StatsOf(const FusedRound& round, const AheadRow& row) {
  const TaskWorkspace workspace = FusedWorkspaceAt(round, row.task);
  return AheadAt(workspace.ahead, row.task_row, round.batch.target.vocab_size).stats;
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
  SPECD_INLINE uint32_t SumOfWarp(uint32_t value) const { return thread_.SumOfWarp(value); }
  SPECD_INLINE void Sync() const { thread_.SyncWarp(); }

 private:
  Thread thread_;
};

// The rows that warps read together.
struct SharedRows {
  int32_t vocab_size = 0;
  int32_t num_rows = 0;
  int32_t num_warps = 1;
};

inline constexpr int32_t kNoRow = -1;

// The parts of rows. Each warp begins with a part of its own, and then takes the next one that no
// warp has. A warp that was held up, because it judged a row, takes fewer.
struct Parts {
  int32_t num_warps = 0;
  int32_t num_tiles = 0;     // the tiles of a row
  int32_t log2_of_part = 0;  // of the tiles of a part
  int32_t parts_per_row = 1;
  int32_t num_parts = 0;

  // Every arrival costs the warp a round trip to the memory that all warps share. If there is work
  // for many warps, parts are therefore larger: up to 8 tiles, with at least 2 parts for each warp.
  // Shifts, because a warp waits for each quotient before it knows its rows.
  SPECD_INLINE explicit Parts(const SharedRows& rows)
      : num_warps(rows.num_warps), num_tiles(NumTiles(rows.vocab_size)) {
    const int32_t tiles = rows.num_rows * num_tiles;
    while (log2_of_part < 3 && num_warps * 4 << log2_of_part <= tiles) ++log2_of_part;
    parts_per_row = (num_tiles + (1 << log2_of_part) - 1) >> log2_of_part;
    num_parts = rows.num_rows * parts_per_row;
  }

  SPECD_INLINE int32_t RowOf(int32_t part) const { return part / parts_per_row; }
  // The tiles of a part of a row.
  SPECD_INLINE int32_t BeginOf(int32_t part) const {
    return (part - RowOf(part) * parts_per_row) << log2_of_part;
  }
  SPECD_INLINE int32_t EndOf(int32_t part) const {
    const int32_t end = BeginOf(part) + (1 << log2_of_part);
    return end < num_tiles ? end : num_tiles;
  }
};
template <typename Thread>
SPECD_INLINE Parts PartsOf(const Thread& thread, const FusedRound& round) {
  return Parts({.vocab_size = round.batch.target.vocab_size,
                .num_rows = round.num_rows,
                .num_warps = thread.num_warps() * thread.num_blocks()});
}

// Counts a part. A warp calls this once for each part that it had, so the last call resets the
// count for the next launch.
template <typename Thread>
SPECD_INLINE int32_t TakePart(const Thread& thread, const FusedRound& round, const Parts& parts) {
  return thread.Take(&round.row_arrivals[round.num_rows], parts.num_parts);
}

// The warp's next part, or a number after all parts. If every part is some warp's first, none is
// left to take.
template <typename Thread>
SPECD_INLINE int32_t NextPart(const Thread& thread, const FusedRound& round, const Parts& parts) {
  if (parts.num_parts <= parts.num_warps) return parts.num_parts;
  return parts.num_warps + TakePart(thread, round, parts);
}

inline constexpr int32_t kNeverReset = 0;

// Leaves a task to the next launch. The end of this launch orders the entry before its readers.
template <typename Thread>
SPECD_INLINE void LeaveFallen(const Thread& thread, const FallenTasks& fallen,
                              const FallenTask& task) {
  const int32_t i = thread.Take(fallen.count, kNeverReset);
  if (thread.lane() == 0) fallen.tasks[i] = task;
}

// Requests the dead nodes of a row's task, for IsDead.
template <typename Thread>
SPECD_INLINE NodeSet LookAtDead(const Thread& thread, const FusedRound& round,
                                const AheadRow& row) {
  return row.place == 0 ? 0 : thread.Look(&round.progress[row.task].dead);
}
// Whether a row decides after a node that is known to be dead. A warp may skip a part because it
// saw a dead node. The warp that completes the row sees at least that node.
template <typename Thread>
SPECD_INLINE bool IsDead(const Thread& thread, NodeSet look, const AheadRow& row) {
  if (row.place == 0) return false;
  return Holds(thread.FirstOf(look), NodeBefore(row.place));
}

// Whether no node can be dead when a warp begins with this part. All first parts begin together, so
// no look is worth its wait. But a launch that resolved the tasks has shortened drafts, and behind
// their ends the rows have no edits.
SPECD_INLINE bool BeginsAlive(const FusedRound& round, const Parts& parts, int32_t part) {
  return part < parts.num_warps && round.resolve.given == nullptr;
}

// Arrives with a part of the row. Returns whether the row is complete, and its partner too.
template <typename Thread>
SPECD_INLINE bool IsLastWithRow(const Thread& thread, const FusedRound& round, const Parts& parts,
                                int32_t index) {
  const int32_t partner = round.rows[index].partner;
  const bool is_alone = partner < 0;
  return thread.IsLastToArrive(&round.row_arrivals[is_alone || index < partner ? index : partner],
                               is_alone ? parts.parts_per_row : 2 * parts.parts_per_row);
}

// The facts that a warp needs while it reads the tiles of a part.
struct PartOfRow {
  Row row;
  bool with_sums = false;
  bool plain = false;  // nothing changes the row
  float scale = 0;
  int32_t end = 0;  // after the last tile
  RowStats stats;
};
template <typename Thread>
SPECD_INLINE PartOfRow PartToRead(const Thread& thread, const FusedRound& round,
                                  const AheadRow& row, int32_t end) {
  PartOfRow part;
  part.with_sums = (row.flags & kAheadSums) != 0;
  part.scale = row.scale;
  part.end = end;
  part.stats = StatsOf(round, row);
  part.plain = (row.flags & kAheadPlain) != 0;
  if (part.plain) {
    part.row.view =
        RowAt(IsTargetRow(row.task_row) ? round.batch.target : round.batch.draft, row.row);
    return part;
  }
  using Team = WarpTeam<LoneWarp<Thread>>;
  Team team{LoneWarp<Thread>(thread)};
  const Task& task = round.batch.tasks[row.task];
  const TaskWorkspace workspace = FusedWorkspaceAt(round, row.task);
  const KeyedCoins coins(task.seed, task.coins, task.num_coins);
  const ChainRows<Team, KeyedCoins> rows(team, round.batch, task, workspace, coins);
  const int32_t index = IndexOfTaskRow(row.task_row);
  part.row = IsTargetRow(row.task_row) ? rows.TargetRow(index) : rows.DraftRow(index);
  return part;
}

// Reads the warp's parts, beginning with `part`, until it completes a row. Returns the row's
// number, or kNoRow after all parts. On a GPU this function calls no other, so its tiles stay in
// registers. The rules for the row lie in memory that the warp shares, because no registers are
// left for them.
template <typename Thread>
SPECD_BODY int32_t ReadParts(Thread thread, const FusedRound& round, int32_t part) {
  const Parts parts = PartsOf(thread, round);
  WarpTeam<LoneWarp<Thread>> team{LoneWarp<Thread>(thread)};
  for (; part < parts.num_parts; part = NextPart(thread, round, parts)) {
    const int32_t index = parts.RowOf(part);
    const AheadRow row = round.rows[index];
    if (BeginsAlive(round, parts, part) || !IsDead(thread, LookAtDead(thread, round, row), row)) {
      const PartOfRow& read = thread.Shared(PartToRead(thread, round, row, parts.EndOf(part)));
      TileAhead ahead;
      for (int32_t t = parts.BeginOf(part); t < read.end; ++t) {
        typename WarpTeam<LoneWarp<Thread>>::Tile tile;
        if (read.plain) {
          team.LoadWithNext(read.row.view, t, t + 1 < read.end, &ahead, &tile);
        } else {
          LoadEdited<false>(team, read.row, t, kAllSteps, &tile);
        }
        NoteTile(team, tile, read.scale, read.with_sums, t, read.stats);
      }
    }
    if (IsLastWithRow(thread, round, parts, index)) return index;
  }
  return kNoRow;
}

// The work of a warp. finish(row) is called when the warp has completed the row of this number.
template <typename Thread, typename Finish>
SPECD_INLINE void RunTilePass(const Thread& thread, const FusedRound& round, const Finish& finish) {
  // Neighbouring parts go to different blocks, so that a small round is spread over the device.
  int32_t part = thread.warp() * thread.num_blocks() + thread.block();
  int32_t row = kNoRow;
  // Nothing stays in registers while the parts are read, which takes them all.
  while ((row = ReadParts(thread, round, part)) != kNoRow) {
    finish(row);
    part = NextPart(thread, round, PartsOf(thread, round));
  }
}

}  // namespace specd
