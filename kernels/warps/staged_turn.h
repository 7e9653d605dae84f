// TakeStaged and EndStaged begin and end a turn of staged rounds for launches that were enqueued
// before the rounds existed.
//
// TakeStaged decides whether the turn has a round, and which one. EndStaged marks the round as
// done. The launches in between are those of any round.
//
// The host stages rounds in areas of pinned memory, round n in area (n - 1) % num_areas, and writes
// the number last. One thread looks for the round, in a launch before the fetch. The blocks of the
// fetch cannot look for themselves, because the host may be staging at that moment. They would have
// to agree, with a word that is reset, an exchange for each block, and a proof that no block reads
// too early. With one thread, the whole turn has the round or none of it has. All later launches
// see the data that the host wrote before the number.
//
// Words lets two processors exchange a number. Acquire(word) reads it; data that the other
// processor wrote before is then visible. Release(value, word) writes it. A processor that reads
// the word with Acquire sees the earlier work of this thread and of all launches that have ended.
#pragma once

#include "kernels/core/check.h"
#include "kernels/core/staged_turn.h"

namespace specd {

// Run by one thread, once. A turn without a round writes an empty one to the round's address.
template <typename Words>
SPECD_HD void TakeStaged(const Words& words, const StagedPlan& plan) {
  StagedTurn* const turn = plan.turn;
  turn->source = plan.areas + turn->num_done % plan.num_areas * plan.area_bytes;
  turn->size_bytes = 0;
  const auto* const header = reinterpret_cast<const FetchHeader*>(turn->source);
  if (words.Acquire(&header->number) != turn->num_done + 1) {
    plan.round->num_rows = 0;
    plan.round->batch.num_tasks = 0;
    return;
  }
  const uint64_t asked = header->size_bytes;
  turn->size_bytes = asked < plan.area_bytes ? asked : plan.area_bytes;
}

// The fetch of the taken round, for RunFetch. Call after TakeStaged has ended.
SPECD_INLINE FetchPlan FetchOfTurn(const StagedPlan& plan) {
  return {.source = plan.turn->source,
          .destination = plan.destination,
          .capacity_bytes = plan.turn->size_bytes,
          .usual_bytes = plan.usual_bytes};
}

// Run by one thread, after the round has ended everywhere.
template <typename Words>
SPECD_HD void EndStaged(const Words& words, const StagedPlan& plan) {
  StagedTurn* const turn = plan.turn;
  if (turn->size_bytes == 0) return;
  uint64_t* const done = &plan.done[turn->num_done % plan.num_areas];
  ++turn->num_done;
  words.Release(turn->num_done, done);
}

}  // namespace specd
