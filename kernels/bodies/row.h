// Row is a row of a tensor as the bodies see it: logits with edits, and perhaps a filter's cut
// (CONTRACT §2, and steps 1 to 6 of §3).
//
// A row is never written back: every pass processes the elements again while it loads them. If
// nothing changes a row, the passes read it in place. docs/ALGORITHMS.md, "From a row to logits".
#pragma once

#include "kernels/bodies/team.h"
#include "kernels/core/elements.h"
#include "kernels/core/round.h"

namespace specd {

// A place in the order of elements: by value, descending, then by id, ascending. A filter always
// keeps all elements up to such a place.
struct Cut {
  float value = -kInfinity;
  TokenId last = kVocabSizeMax;  // the highest kept id among the elements equal to value
};

// The cut that keeps fewer elements.
SPECD_INLINE Cut Tighter(const Cut& a, const Cut& b) {
  if (a.value != b.value) return a.value > b.value ? a : b;
  return {a.value, a.last < b.last ? a.last : b.last};
}

struct Row {
  RowView view;
  const uint32_t* mask = nullptr;  // the grammar's; null: no mask
  SequenceEdits sequence;
  PlaceEdits place;
  bool has_cut = false;
  Cut cut;
  const TokenId* removed = nullptr;  // ids that were already drawn, in any order
  int32_t num_removed = 0;

  // No branch between the comparisons, so the loads of all members overlap.
  SPECD_INLINE bool plain() const {
    return (mask == nullptr) & (sequence.allowed == nullptr) & (sequence.num_edits == 0) &
           (place.num_overrides == 0) & !has_cut & (num_removed == 0);
  }
};

// Turns an element of a tensor into a logit. NaN stays NaN and infinities stay infinities: an
// element that the engine masked before specd capped the row is still masked.
struct ArriveFunction {
  ElementRules rules;

  template <typename Value>
  SPECD_INLINE Value operator()(Value x) const {
    if (rules.kind == RowKind::kLogits) return Logit(x);
    // Final probabilities are sampled with scale 1, so that powers of two stay exact.
    constexpr float kLn2 = 0x1.62e430p-1f;
    constexpr float kSmallestNormal = 0x1p-126f;
    const Value log = Log2(x) * (rules.kind == RowKind::kFinalProbabilities ? 1.0f : kLn2);
    Value result = Select(x < kSmallestNormal, Value(-kInfinity), log);
    result = Select(x == kInfinity, Value(kInfinity), result);
    // A negative value is no probability and becomes NaN. NaN fails every comparison and stays NaN.
    return Select(x >= 0.0f, result, Value(FloatOf(0x7FC00000u)));
  }

  SPECD_INLINE bool IsIdentity() const {
    return (rules.kind == RowKind::kLogits) & (rules.scale == 1.0f) & (rules.cap == 0.0f);
  }

 private:
  template <typename Value>
  SPECD_INLINE Value Logit(Value x) const {
    const Value scaled = x * rules.scale;
    if (rules.cap == 0.0f) return scaled;
    return Select(scaled - scaled == 0.0f, Tanh(Divide(scaled, rules.cap)) * rules.cap, scaled);
  }
};

// The scale of a row's weights. Final probabilities arrive as log2 p and have no temperature.
SPECD_INLINE float ScaleOf(const Row& row, float scale) {
  return row.view.rules.kind == RowKind::kFinalProbabilities ? 1.0f : scale;
}

SPECD_INLINE bool MaskAllows(const uint32_t* words, TokenId id) {
  return words == nullptr || (words[id / 32] >> (id % 32) & 1u) != 0;
}

// The first edit whose id is not below `id`. The loop has no branch that could be mispredicted.
SPECD_INLINE int32_t LowerBound(const TokenEdit* edits, int32_t num_edits, TokenId id) {
  if (num_edits == 0) return 0;
  int32_t begin = 0;
  for (int32_t rest = num_edits; rest > 1;) {
    const int32_t half = rest / 2;
    begin = edits[begin + half - 1].id < id ? begin + half : begin;
    rest -= half;
  }
  return edits[begin].id < id ? begin + 1 : begin;
}

// Step 1 for one element.
SPECD_INLINE bool IsAllowed(const Row& row, const TokenEdit& edit) {
  return (edit.flags & kEditDisallowed) == 0 && MaskAllows(row.mask, edit.id) &&
         MaskAllows(row.sequence.allowed, edit.id);
}

// Steps 1 to 5 for an element that has an edit. Each operation is one rounding.
SPECD_INLINE float EditedElement(const Row& row, const TokenEdit& edit) {
  if (!IsAllowed(row, edit)) return -kInfinity;
  float l = ArriveFunction{row.view.rules}(LoadElement(row.view, edit.id));
  if (IsNan(l)) return l;
  l = l + edit.bias;
  const uint32_t bans = kEditBanned | (row.place.below_min_tokens ? uint32_t{kEditEnd} : 0u);
  if ((edit.flags & bans) != 0) return -kInfinity;
  const Penalties& penalties = row.sequence.penalties;
  if ((edit.flags & kEditSeen) != 0) {
    l = l > 0.0f ? Divide(l, penalties.repetition) : l * penalties.repetition;
  }
  if (edit.count > 0) {
    l = l - penalties.frequency * static_cast<float>(edit.count);
    l = l - penalties.presence;
  }
  return l;
}

// The edit of an id in this row, or null.
SPECD_INLINE const TokenEdit* EditOf(const Row& row, TokenId id) {
  const PlaceEdits& place = row.place;
  const int32_t o = LowerBound(place.overrides, place.num_overrides, id);
  if (o < place.num_overrides && place.overrides[o].id == id) return &place.overrides[o];
  const SequenceEdits& sequence = row.sequence;
  const int32_t e = LowerBound(sequence.edits, sequence.num_edits, id);
  if (e < sequence.num_edits && sequence.edits[e].id == id) return &sequence.edits[e];
  return nullptr;
}

SPECD_INLINE bool IsRemoved(const Row& row, TokenId id) {
  for (int32_t i = 0; i < row.num_removed; ++i) {
    if (row.removed[i] == id) return true;
  }
  return false;
}

// Whether the elements are those of the tensor.
SPECD_INLINE bool IsReadAsItLies(const Row& row) {
  const bool is_plain = row.plain();
  const bool is_whole = row.view.columns == nullptr;
  const bool is_identity = ArriveFunction{row.view.rules}.IsIdentity();
  return is_plain & is_whole & is_identity;
}

// One processed element, equal to that of LoadRow. REQUIRES: id is in the vocabulary.
SPECD_INLINE float ElementOf(const Row& row, TokenId id) {
  if (IsReadAsItLies(row)) return LoadElement(row.view, id);
  const TokenEdit* edit = EditOf(row, id);
  float l = -kInfinity;
  if (edit != nullptr) {
    l = EditedElement(row, *edit);
  } else if (MaskAllows(row.mask, id) && MaskAllows(row.sequence.allowed, id)) {
    l = ArriveFunction{row.view.rules}(LoadElement(row.view, id));
  }
  if (IsRemoved(row, id)) return -kInfinity;
  if (!row.has_cut) return l;
  return l > row.cut.value || (l == row.cut.value && id <= row.cut.last) ? l : -kInfinity;
}

// Edits from the first one whose id is not below the first id of a tile.
struct EditRun {
  const TokenEdit* edits = nullptr;
  int32_t begin = 0;
  int32_t end = 0;
  TokenId first = 0;  // the first id of the tile

  SPECD_INLINE EditRun(const TokenEdit* all, int32_t num_edits, int32_t tile_index)
      : edits(all), end(num_edits), first(tile_index * kTileSize) {
    begin = LowerBound(all, num_edits, first);
  }
  template <Team T>
  SPECD_INLINE EditRun(const T& team, const TokenEdit* all, int32_t num_edits, int32_t tile_index)
      : edits(all), end(num_edits), first(tile_index * kTileSize) {
    if constexpr (LooksByLane<T>) {
      begin = team.NumBelow(num_edits, [&](int32_t i) { return ElementOf(i) < 0; });
    } else {
      begin = LowerBound(all, num_edits, first);
    }
  }
  SPECD_INLINE int32_t ElementOf(int32_t i) const { return edits[i].id - first; }
  SPECD_INLINE bool IsEmpty() const { return begin == end || ElementOf(begin) >= kTileSize; }
};

template <Team T>
SPECD_INLINE void ApplyEdits(T& team, const Row& row, const EditRun& run, typename T::Tile* tile) {
  team.SetEach(
      run.begin, run.end, [&](int32_t i) { return run.ElementOf(i); },
      [&](int32_t i) { return EditedElement(row, run.edits[i]); }, tile);
}

// Steps 1 to 5 for a tile. kByLane: lanes seek the first edit, which takes registers.
template <bool kByLane = true, Team T>
SPECD_HOT void LoadEdited(T& team, const Row& row, int32_t tile_index, uint32_t steps,
                          typename T::Tile* tile) {
  const ArriveFunction arrive{row.view.rules};
  const uint32_t* const allowed = row.sequence.allowed;
  const auto mask = team.MaskOf(row.mask, allowed, row.view.vocab_size, tile_index);
  steps &= team.StepsLeft(mask);
  const auto run_of = [&](const TokenEdit* all, int32_t num_edits) {
    if constexpr (kByLane) return EditRun(team, all, num_edits, tile_index);
    return EditRun(all, num_edits, tile_index);
  };
  const EditRun edits = run_of(row.sequence.edits, row.sequence.num_edits);
  const EditRun overrides = run_of(row.place.overrides, row.place.num_overrides);
  if (T::kReadsInPlace && arrive.IsIdentity() && edits.IsEmpty() && overrides.IsEmpty()) {
    team.Load(row.view, tile_index, steps, Identity{}, tile);
  } else {
    team.Load(row.view, tile_index, steps, arrive, tile);
  }
  team.ApplyMask(mask, tile);
  // An override is applied second and starts from the element as it arrived, so it wins.
  ApplyEdits(team, row, edits, tile);
  ApplyEdits(team, row, overrides, tile);
}

template <Team T>
SPECD_HOT void LoadProcessed(T& team, const Row& row, int32_t tile_index, uint32_t steps,
                             typename T::Tile* tile) {
  LoadEdited(team, row, tile_index, steps, tile);
  const TokenId first = tile_index * kTileSize;
  for (int32_t i = 0; i < row.num_removed; ++i) {
    const TokenId element = row.removed[i] - first;
    if (element >= 0 && element < kTileSize) team.Set(element, -kInfinity, tile);
  }
  if (row.has_cut) team.Keep(row.cut.value, row.cut.last - first, tile);
}

// Loads one tile of processed elements, or some steps of it.
template <Team T>
SPECD_STEP void LoadRow(T& team, const Row& row, int32_t tile_index, uint32_t steps,
                        typename T::Tile* tile) {
  if (IsReadAsItLies(row)) {
    team.Load(row.view, tile_index, steps, Identity{}, tile);
  } else {
    LoadProcessed(team, row, tile_index, steps, tile);
  }
}

}  // namespace specd
