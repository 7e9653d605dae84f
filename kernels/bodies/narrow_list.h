// ListFrom lists the elements of a row that are not below a floor, for a team of one warp
// (warp_team.h).
//
// Use it when the warp has completed a row that was read ahead and knows every step's peak. The
// warp reads only the steps whose peak reaches the floor, and only a few of them. It fetches eight
// steps at a time, wherever they lie, and lists ids. Then each lane finds the elements of listed
// ids, with the edits of the row. The warp therefore waits for memory only a few times.
#pragma once

#include "kernels/bodies/cut_functions.h"
#include "kernels/bodies/distribution.h"

namespace specd {

// Whether an element arrives at or above a floor.
struct ArrivesFrom {
  ArriveFunction arrive;
  float floor;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return arrive(x) >= floor;
  }
};

// Whether an edit may raise an element.
SPECD_INLINE bool MayRaise(const Row& row, const TokenEdit& edit) {
  const Penalties& penalties = row.sequence.penalties;
  const bool is_penalised = (edit.flags & kEditSeen) != 0 || edit.count > 0;
  const bool is_reward =
      penalties.repetition < 1.0f || penalties.frequency < 0.0f || penalties.presence < 0.0f;
  return edit.bias > 0.0f || (is_penalised && is_reward);
}

// The edits of a list that a search for raised elements has to look at: all, or none.
template <Team T>
SPECD_INLINE int32_t NumRaising(T& team, const Row& row, const TokenEdit* edits,
                                int32_t num_edits) {
  const auto may_raise = [&](int32_t i) { return MayRaise(row, edits[i]); };
  return team.FirstWhere(num_edits, may_raise) < num_edits ? num_edits : 0;
}

// Lists the ids that may hold elements from the floor on, in a few steps: those that arrive there
// and that no mask forbids, and those that an edit raises to it. Returns -1 if there are too many.
template <Team T>
SPECD_INLINE int32_t ListIdsFrom(T& team, const Row& row, float floor, const int32_t* steps,
                                 int32_t num_steps, TokenId* ids) {
  const ArriveFunction arrive{row.view.rules};
  const SequenceEdits& sequence = row.sequence;
  const PlaceEdits& place = row.place;
  const int32_t num_edits = NumRaising(team, row, sequence.edits, sequence.num_edits);
  const int32_t num_overrides = NumRaising(team, row, place.overrides, place.num_overrides);
  int32_t num_ids = 0;
  for (int32_t begin = 0; begin < num_steps && num_ids >= 0; begin += kStepsPerTile) {
    const int32_t* const numbers = steps + begin;
    const int32_t rest = num_steps - begin;
    const int32_t num = rest < kStepsPerTile ? rest : kStepsPerTile;
    auto chosen = arrive.IsIdentity()
                      ? team.LookAtSteps(row.view, numbers, num, AtLeast{floor})
                      : team.LookAtSteps(row.view, numbers, num, ArrivesFrom{arrive, floor});
    if (row.mask != nullptr || sequence.allowed != nullptr) {
      chosen.ForbidAllBut(
          team.MaskOfSteps(row.mask, sequence.allowed, row.view.vocab_size, numbers, num));
    }
    const auto choose_raised = [&](const TokenEdit* edits, int32_t num_raising) {
      const auto is_raised = [&](int32_t i) {
        return MayRaise(row, edits[i]) && EditedElement(row, edits[i]) >= floor;
      };
      team.ChooseIds(
          numbers, num, num_raising, [&](int32_t i) { return edits[i].id; }, is_raised, &chosen);
    };
    if (num_edits > 0) choose_raised(sequence.edits, num_edits);
    if (num_overrides > 0) choose_raised(place.overrides, num_overrides);
    num_ids = team.AddIds(chosen, numbers, num_ids, kNarrowListMax, ids);
  }
  return num_ids;
}

// Lists elements in ascending order of ids. Returns -1 if there are too many elements or steps.
// REQUIRES: the team is one group; no cut and no removed ids change the row.
template <Team T>
SPECD_BODY int32_t ListFrom(T& team, const Distribution& p, float floor, const NarrowList& list) {
  if (list.steps == nullptr) return -1;
  team.Sync();
  const int32_t num_steps = team.ListWhere(
      NumTiles(p.row.view.vocab_size) * kStepsPerTile,
      [&](int32_t step) { return p.stats.peaks[step] >= floor; }, kNarrowStepsMax, list.steps);
  team.Sync();
  if (num_steps < 0) return -1;
  const int32_t num_ids = ListIdsFrom(team, p.row, floor, list.steps, num_steps, list.elements.ids);
  team.Sync();
  if (num_ids < 0) return -1;
  return team.KeepFrom(
      floor, num_ids, [&](TokenId id) { return ElementOf(p.row, id); }, list.elements);
}

}  // namespace specd
