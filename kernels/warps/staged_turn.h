// A turn of rounds that are staged after they were enqueued: which round it takes, whether there is
// one, and that it has been done. What lies between is the same as in any round.
//
// The host stages rounds in areas of pinned memory, round n in area (n - 1) % num_areas, and writes
// the number last. Whether the round is there is asked by one thread, in a launch of its own before
// the fetch, and not by every block of the fetch: the host may be staging at this very moment, and
// blocks that asked for themselves would have to agree, with a word that is set back, an exchange
// for each of them and a proof that no one reads ahead of it. So a round is there for the whole
// turn or for none of it, and what the host wrote before the number is seen by all that follows.
//
// Words is how two processors tell each other a number: Acquire(word) reads it, and what the other
// wrote before it is seen after; Release(value, word) writes it, and what was done before, by this
// thread and by launches that have ended, is seen by whoever reads it so.
#pragma once

#include "kernels/core/check.h"
#include "kernels/core/staged_turn.h"

namespace specd {

// One thread, once. A turn that has no round leaves an empty one where the round would be.
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

// After TakeStaged has ended: the fetch of what it took, for RunFetch.
SPECD_INLINE FetchPlan FetchOfTurn(const StagedPlan& plan) {
  return {.source = plan.turn->source,
          .destination = plan.destination,
          .capacity_bytes = plan.turn->size_bytes,
          .usual_bytes = plan.usual_bytes};
}

// One thread, after the round has ended everywhere.
template <typename Words>
SPECD_HD void EndStaged(const Words& words, const StagedPlan& plan) {
  StagedTurn* const turn = plan.turn;
  if (turn->size_bytes == 0) return;
  uint64_t* const done = &plan.done[turn->num_done % plan.num_areas];
  ++turn->num_done;
  words.Release(turn->num_done, done);
}

}  // namespace specd
