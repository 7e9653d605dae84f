// EditedPeaks makes the first pass over a row with masks and edits, for ReadTiles. It begins with
// the peaks of the row without edits.
//
// An edit changes one element. If that element was below the peak of its step, another element
// reaches the peak. The new peak is then the larger of that peak and the element's new value, so
// the step need not be loaded, changed and read. Most penalties only lower an element, and then its
// new value is not needed either. One thread.
#pragma once

#include "kernels/bodies/row.h"

namespace specd {

class EditedPeaks {
 public:
  // `first`: of the tiles that Note is called for, which rise.
  SPECD_INLINE EditedPeaks(const Row& row, int32_t first)
      : row_(row),
        lowers_(Lowers(row.sequence.penalties)),
        edits_(row.sequence.edits, row.sequence.num_edits, first),
        overrides_(row.place.overrides, row.place.num_overrides, first) {}

  // Whether nothing but masks and edits changes the row.
  SPECD_INLINE static bool CanRead(const Row& row) {
    return row.view.columns == nullptr && !row.has_cut && row.num_removed == 0 &&
           ArriveFunction{row.view.rules}.IsIdentity();
  }

  // Notes the peaks and the maximum of a tile, as NoteTile does without sums. Returns false if the
  // tile has to be loaded.
  template <typename T>
  SPECD_INLINE bool Note(T& team, int32_t t, const RowStats& stats) {
    edits_.GoTo(t);
    overrides_.GoTo(t);
    float max = 0;
    if (!team.ReadPeaks(row_.view, t, row_.mask, row_.sequence.allowed, stats, &max)) return false;
    float* const peaks = stats.peaks + t * kStepsPerTile;
    if (!edits_.IsAtEnd() || !overrides_.IsAtEnd()) {
      const uint32_t unknown = ApplyAll(peaks);
      if (unknown != 0 && !ReadSteps(team, t, unknown, peaks)) return false;
      max = peaks[0];
      for (int32_t step = 1; step < kStepsPerTile; ++step) {
        max = peaks[step] > max ? peaks[step] : max;
      }
    }
    stats.maxima[t] = max;
    stats.sums[t] = 0;
    return true;
  }

 private:
  // The edits of one tile after another.
  class Cursor {
   public:
    SPECD_INLINE Cursor(const TokenEdit* edits, int32_t num_edits, int32_t tile_index)
        : edits_(edits),
          num_edits_(num_edits),
          next_(LowerBound(edits, num_edits, tile_index * kTileSize)) {}

    // Leaves out what comes before tile t.
    SPECD_INLINE void GoTo(int32_t t) {
      first_ = t * kTileSize;
      while (next_ < num_edits_ && edits_[next_].id < first_) ++next_;
    }
    SPECD_INLINE bool IsAtEnd() const {
      return next_ == num_edits_ || edits_[next_].id - first_ >= kTileSize;
    }
    SPECD_INLINE bool IsAtEndOrFrom(TokenId id) const {
      return IsAtEnd() || edits_[next_].id >= id;
    }
    SPECD_INLINE bool IsAt(TokenId id) const {
      return next_ < num_edits_ && edits_[next_].id == id;
    }
    SPECD_INLINE const TokenEdit& Take() { return edits_[next_++]; }
    SPECD_INLINE int32_t StepOf(const TokenEdit& edit) const { return (edit.id - first_) / kLanes; }

   private:
    const TokenEdit* const edits_;
    const int32_t num_edits_;
    int32_t next_;
    TokenId first_ = 0;
  };

  // Whether they raise no element.
  SPECD_INLINE static bool Lowers(const Penalties& penalties) {
    return penalties.repetition >= 1.0f && penalties.frequency >= 0.0f &&
           penalties.presence >= 0.0f;
  }

  // Returns the steps whose peaks are not known then. An override replaces the edit of its id.
  SPECD_INLINE uint32_t ApplyAll(float* peaks) {
    uint32_t unknown = 0;
    while (!edits_.IsAtEnd()) {
      const TokenEdit& edit = edits_.Take();
      while (!overrides_.IsAtEndOrFrom(edit.id)) unknown |= Apply(overrides_.Take(), peaks);
      if (!overrides_.IsAt(edit.id)) unknown |= Apply(edit, peaks);
    }
    while (!overrides_.IsAtEnd()) unknown |= Apply(overrides_.Take(), peaks);
    return unknown;
  }

  // Returns the step if the element may be the only one at its peak.
  SPECD_INLINE uint32_t Apply(const TokenEdit& edit, float* peaks) const {
    // A masked element is -inf with and without its edit.
    if (!MaskAllows(row_.mask, edit.id) || !MaskAllows(row_.sequence.allowed, edit.id)) return 0;
    const int32_t step = edits_.StepOf(edit);
    float* const peak = peaks + step;
    if (!(LoadElement(row_.view, edit.id) < *peak)) return 1u << step;
    if (lowers_ && edit.bias <= 0.0f) return 0;
    const float value = EditedElement(row_, edit);
    if (IsNan(value)) return 1u << step;
    // A zero is +0.
    if (value > *peak) *peak = value + 0.0f;
    return 0;
  }

  // Reads the peaks of steps with their edits. Returns false if there is a NaN.
  template <typename T>
  SPECD_INLINE bool ReadSteps(T& team, int32_t t, uint32_t steps, float* peaks) const {
    typename T::Tile tile;
    float of_step[kStepsPerTile];
    LoadRow(team, row_, t, steps, &tile);
    if (IsNan(team.MaxBySteps(tile, of_step))) return false;
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      if ((steps >> step & 1u) != 0) peaks[step] = of_step[step];
    }
    return true;
  }

  const Row& row_;
  const bool lowers_;
  Cursor edits_;
  Cursor overrides_;
};

}  // namespace specd
