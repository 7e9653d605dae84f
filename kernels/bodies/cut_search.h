// CutSearch finds a place in the order of a row's elements for filters, without a sort.
//
// docs/ALGORITHMS.md, "Filters". The search is a bisection over values. A pass counts the elements
// at or above a pivot, or sums their integer weights, which is exact in any order. Only steps whose
// peak reaches the pivot are read. Once the remaining elements fit into a list, passes read the
// list. Pivots determine the speed of the search and never its answer.
#pragma once

#include <initializer_list>

#include "kernels/bodies/bracket_list.h"
#include "kernels/bodies/cut_estimate.h"
#include "kernels/bodies/narrow_list.h"
#include "kernels/bodies/peaks.h"

namespace specd {

// Finds cuts in one row, and then gathers the remaining elements. A cut is the shortest prefix of
// the order that reaches a number of elements, or a sum of their integer weights. kNarrow: a team
// of one group searches. It makes no pass over the row except for a NarrowList, and gives up if the
// list does not hold the answer.
template <Team T, bool kNarrow = false>
class CutSearch {
 public:
  // `p` has row (without a cut), tiles, max and scale, and must outlive the search. kNarrow: the
  // row was read ahead.
  SPECD_HD CutSearch(T& team, const Distribution& p, const RowWorkspace& workspace)
      : team_(team),
        p_(p),
        workspace_(workspace),
        list_(kNarrow ? workspace.ahead.list.elements : workspace.list),
        num_tiles_(NumTiles(p.row.view.vocab_size)),
        weight_{p.max, p.scale},
        // -0 would have a neighbour equal to it.
        above_all_(FloatOfKey(OrderedKey(p.max + 0.0f) + 1)) {}

  // Returns false if the whole row has less than the goal, or if the search gave up.
  SPECD_BODY bool Find(const CutGoal& goal, Cut* cut) {
    need_ = goal.need;
    by_weight_ = goal.by_weight;
    high_ = above_all_;
    at_high_ = Tally{};
    if (!FindLowInList() && !FindLow(goal)) return false;
    if constexpr (kNarrow) {
      if (IsShort()) {
        *cut = CutInOrder();
        return true;
      }
    }
    Narrow();
    const uint64_t weight = by_weight_ ? IntegerWeight(weight_(low_), 0) : uint64_t{1};
    const uint64_t each =
        weight > 0 ? weight : 1;  // 0 only if the row changed since it was measured
    const uint64_t missing = need_ - at_high_.amount;
    *cut = {low_, IdOfEqual(low_, (missing + each - 1) / each)};
    return true;
  }

  SPECD_HD bool gave_up() const { return gave_up_; }

  // Gathers the elements that the cut keeps, into the list if they fit, and otherwise tile by tile.
  // Returns their mass.
  SPECD_BODY uint64_t Gather(const Cut& cut) {
    if constexpr (kNarrow) {
      if (complete() && cut.value >= list_floor_) return MassOfListed(cut);
      return ListAll(cut.value) ? MassOfListed(cut) : 0;
    } else {
      return GatherAnywhere(cut);
    }
  }

  // Copies the results of the last Gather to the distribution.
  SPECD_HD void Describe(const Cut& cut, Distribution* p) const {
    p->row.has_cut = true;
    p->row.cut = cut;
    p->tallies = workspace_.tallies;
    p->list = list_;
    p->num_listed = listed_ ? num_listed_ : 0;
    p->list_cut = ListCut(cut);
  }

 private:
  SPECD_HD uint64_t GatherAnywhere(const Cut& cut) {
    if (!complete() || cut.value < list_floor_) {
      const Cut in_list = ListCut(cut);
      const bool inside = listed_ && cut.value >= list_floor_ && cut.value < list_end_;
      listed_ = false;
      if (inside && masses_.known) {
        return MassesBeside(team_, p_, workspace_, num_listed_, in_list, masses_.is_low);
      }
      by_weight_ = false;
      low_ = cut.value;
      high_ = above_all_;
      at_high_ = Tally{};
      MeasureFromLow();
      if (!listed_ && at_low_.count <= kListMax) ListBracket();
    }
    return listed_ ? MassOfListed(cut) : MassOfTiles(cut);
  }

  // Whether the list holds every element that is not below list_floor_.
  SPECD_HD bool complete() const { return listed_ && list_end_ == above_all_; }

  // A complete list of an earlier search serves again if it holds the answer.
  SPECD_HD bool FindLowInList() {
    if (complete()) {
      low_ = list_floor_;
      at_low_ = MeasureList(low_);
      if (at_low_.amount >= need_) return true;
    }
    listed_ = false;
    masses_.known = false;
    return false;
  }

  // Lists all elements from `floor` on. If the row changed, there may be none.
  SPECD_HD bool ListAll(float floor) {
    num_listed_ = ListFrom(team_, p_, floor, workspace_.ahead.list);
    listed_ = num_listed_ > 0;
    list_floor_ = floor;
    list_end_ = above_all_;
    base_ = Tally{};
    gave_up_ = gave_up_ || !listed_;
    // The list of steps has done its work.
    if (listed_ && IsShort()) team_.Order(list_.values, num_listed_, workspace_.ahead.list.steps);
    return listed_;
  }
  SPECD_HD bool IsShort() const { return num_listed_ <= kNarrowStepsMax; }

  // The cut if a complete list is short enough to be ordered.
  SPECD_BODY Cut CutInOrder() {
    const int32_t* const order = workspace_.ahead.list.steps;
    int32_t last = static_cast<int32_t>(need_) - 1;
    if (by_weight_) {
      const auto weight_of = [&](int32_t i) {
        return IntegerWeight(weight_(list_.values[order[i]]), 0);
      };
      last = team_.FindTerm(num_listed_, weight_of, need_ - 1).element;
    }
    return {list_.values[order[last]], list_.ids[order[last]]};
  }

  // Lists from a likely floor first, and then as many elements as fit.
  SPECD_BODY bool FindLowInNewList(float first) {
    low_ = first < high_ && first >= kLowestFloat ? first : p_.max - 8.0f / p_.scale;
    if (!(low_ >= kLowestFloat)) low_ = kLowestFloat;
    for (bool again : {true, false}) {
      if (!ListAll(low_)) return false;
      at_low_ = MeasureList(low_);
      if (at_low_.amount >= need_) return true;
      if (low_ == kLowestFloat) return false;
      const float lowest = again ? KthPeak(team_, p_, kNarrowStepsMax * 3 / 4) : low_;
      if (!(lowest < low_)) break;
      low_ = lowest >= kLowestFloat ? lowest : kLowestFloat;
    }
    gave_up_ = true;
    return false;
  }

  SPECD_HD bool FindLow(const CutGoal& goal) {
    if constexpr (kNarrow) {
      return FindLowInNewList(goal.first);
    } else {
      return FindLowInRow(goal);
    }
  }

  // Lowers the floor until the prefix is long enough. The steps double, so all passes except the
  // last read few tiles. If most elements are above the first floor, the search begins where a
  // sample of the row says that it will end.
  SPECD_BODY bool FindLowInRow(const CutGoal& goal) {
    float step = 8.0f / p_.scale;
    low_ = goal.first < high_ && goal.first >= kLowestFloat ? goal.first : p_.max - step;
    if (goal.all > goal.need && IsWide(team_, p_, low_)) {
      const CutEstimate estimate = EstimateCut(team_, p_, workspace_, goal);
      if (estimate.density > 0 && ListBeside(estimate)) return true;
    }
    while (true) {
      if (!(low_ >= kLowestFloat)) low_ = kLowestFloat;
      MeasureFromLow();
      if (at_low_.amount >= need_) return true;
      listed_ = false;
      if (low_ == kLowestFloat) return false;
      high_ = low_;
      at_high_ = at_low_;
      do {
        step *= 2.0f;
        low_ = p_.max - step;
      } while (low_ >= high_);
    }
  }

  // Lists the elements between the estimate and a place after the answer. All elements in between
  // weigh about the same, so the mass that is missing says how many they are, and their density how
  // far the place is. Returns false if the answer is not among them.
  SPECD_BODY bool ListBeside(const CutEstimate& estimate) {
    const float pivot = estimate.value;
    const WeightAtLeast function{weight_, pivot};
    const uint64_t mass =
        MeasureTiles(team_, p_, p_.row, pivot, workspace_.tallies, [&](const auto& tile) {
          return Tally{0, team_.SumWeights(function, 0, tile)};
        }).amount;
    const bool is_low = mass >= need_;
    const uint64_t missing = is_low ? mass - need_ : need_ - mass;
    const auto each = static_cast<double>(IntegerWeight(weight_(pivot), 0));
    // If elements are equal, a few more belong to the same place.
    const double num_between = static_cast<double>(missing) / each * 1.25 + kListMax / 8;
    if (!(num_between <= kListMax * 0.9)) return false;
    const auto width = static_cast<float>(num_between / estimate.density);
    const Between bracket{is_low ? pivot : pivot - width, is_low ? pivot + width : pivot};
    if (!(bracket.low >= kLowestFloat && bracket.low < bracket.high)) return false;
    const int32_t count = ListBetween(team_, p_, bracket, false, workspace_);
    if (count < 0) return false;
    typename T::Tile tile;
    LoadList(team_, list_, count, &tile);
    const uint64_t listed = team_.SumWeights(weight_, 0, tile);
    if (is_low ? listed <= missing || listed > mass : listed < missing) return false;
    low_ = bracket.low;
    high_ = bracket.high;
    // The elements above the bracket are not counted: only differences matter inside it.
    at_high_ = {0, is_low ? mass - listed : mass};
    at_low_ = {static_cast<uint64_t>(count), at_high_.amount + listed};
    masses_ = {true, is_low};
    TakeList();
    return true;
  }

  // Measures the elements from low on. A group that is alone lists them at once if they fit.
  SPECD_HD void MeasureFromLow() {
    const bool alone = team_.num_groups() == 1;
    const int32_t count =
        alone ? ListBetween(team_, p_, {low_, above_all_}, false, workspace_) : -1;
    if (count < 0) {
      at_low_ = MeasureRow(low_);
      counted_at_low_ = true;
      return;
    }
    high_ = above_all_;
    at_high_ = Tally{};
    at_low_.count = static_cast<uint64_t>(count);
    TakeList();
    at_low_ = MeasureList(low_);
  }

  // The list holds the elements of [low, high).
  SPECD_HD void TakeList() {
    num_listed_ = static_cast<int32_t>(at_low_.count - at_high_.count);
    list_floor_ = low_;
    list_end_ = high_;
    base_ = at_high_;
    listed_ = true;
  }

  // Invariant: amount(>= low) >= need > amount(>= high). Ends with low at the element sought.
  SPECD_BODY void Narrow() {
    if constexpr (!kNarrow) {
      for (int32_t step = 0; !listed_; ++step) {
        if (at_low_.count - at_high_.count <= kListMax) {
          ListBracket();
          break;
        }
        const float pivot = step < kGuesses ? Guess(step % 2 == 0) : Pivot(step % 2 == 0);
        if (!(pivot > low_ && pivot < high_)) return;
        Move(pivot, MeasureRow(pivot));
      }
    }
    NarrowInList();
  }

  // If few elements remain, the search takes them from the top one by one. That ends at once; a
  // bisection would continue down to neighbouring floats.
  SPECD_BODY void NarrowInList() {
    typename T::Tile tile;
    LoadList(team_, list_, num_listed_, &tile);
    for (bool by_value = true;; by_value = !by_value) {
      const bool few = at_low_.count - at_high_.count <= kFew;
      const float pivot = few ? team_.Max(BelowOnly{high_}, tile) : Pivot(by_value);
      const bool inside = few ? pivot >= low_ : pivot > low_ && pivot < high_;
      if (!inside) return;
      Tally tally = MeasureTile(tile, pivot);
      tally.count += base_.count;
      tally.amount += base_.amount;
      Move(pivot, tally);
      if (few && low_ == pivot) return;
    }
  }

  SPECD_HD void Move(float pivot, const Tally& tally) {
    counted_at_low_ = tally.amount >= need_;
    (counted_at_low_ ? low_ : high_) = pivot;
    (counted_at_low_ ? at_low_ : at_high_) = tally;
  }

  SPECD_HD float Pivot(bool by_value) const { return MiddleOf({low_, high_}, by_value); }
  SPECD_HD float Guess(bool above) const {
    const float guess = GuessBetween({low_, high_}, at_low_, at_high_, need_, above);
    return guess > low_ && guess < high_ ? guess : Pivot(true);
  }

  SPECD_HD Tally MeasureTile(const typename T::Tile& tile, float pivot) {
    return MeasureFrom(team_, tile, pivot, by_weight_, weight_);
  }
  SPECD_HD Tally MeasureList(float pivot) {
    const Tally tally = MeasureListFrom(team_, list_, num_listed_, pivot, by_weight_, weight_);
    return {base_.count + tally.count, base_.amount + tally.amount};
  }

  SPECD_BODY Tally MeasureRow(float pivot) {
    return MeasureTiles(team_, p_, p_.row, pivot, workspace_.tallies,
                        [&](const auto& tile) { return MeasureTile(tile, pivot); });
  }

  SPECD_BODY void ListBracket() {
    // If the bracket has no upper bound, the last pass over the row counted exactly these elements.
    const bool is_counted = counted_at_low_ && high_ == above_all_;
    // If the row changed, the list may hold fewer elements than were counted, and older ones.
    ListBetween(team_, p_, {low_, high_}, is_counted, workspace_);
    TakeList();
  }

  // The id of the n-th element (from 1) that equals `value`.
  SPECD_BODY TokenId IdOfEqual(float value, uint64_t n) {
    if (!listed_) return IdOfEqualInRow(value, n);
    typename T::Tile tile;
    LoadList(team_, list_, num_listed_, &tile);
    const uint64_t before = (n - 1) << kWeightBits;
    const int32_t place = team_.FindPrefix(OneWhereEqual{value}, 0, before, tile).element;
    return place < 0 ? kVocabSizeMax : list_.ids[place];
  }

  SPECD_HD TokenId IdOfEqualInRow(float value, uint64_t n) {
    // The list holds every value that the search finds.
    if constexpr (kNarrow) return kVocabSizeMax;
    typename T::Tile tile;
    const OneWhereEqual one{value};
    MeasureTiles(team_, p_, p_.row, value, workspace_.tallies, [&](const auto& of_tile) {
      return Tally{static_cast<uint64_t>(team_.Count(EqualTo{value}, of_tile)), 0};
    });
    for (int32_t t = 0; t < num_tiles_; ++t) {
      if (n > workspace_.tallies[t].count) {
        n -= workspace_.tallies[t].count;
        continue;
      }
      LoadRow(team_, p_.row, t, StepsFrom(p_, t, value), &tile);
      const int32_t place = team_.FindPrefix(one, 0, (n - 1) << kWeightBits, tile).element;
      return place < 0 ? kVocabSizeMax : t * kTileSize + place;
    }
    return kVocabSizeMax;
  }

  SPECD_HD Cut ListCut(const Cut& cut) const {
    if (!listed_) return cut;
    return {cut.value, NumUpTo(list_, num_listed_, cut.last) - 1};
  }

  SPECD_HD uint64_t MassOfListed(const Cut& cut) {
    return MassOfList(team_, list_, num_listed_, weight_, cut);
  }

  SPECD_BODY uint64_t MassOfTiles(const Cut& cut) {
    Row row = p_.row;
    row.has_cut = true;
    row.cut = cut;
    return MeasureTiles(team_, p_, row, cut.value, workspace_.tallies,
                        [&](const auto& tile) {
                          return Tally{0, team_.SumWeights(weight_, 0, tile)};
                        })
        .amount;
  }

  static constexpr uint64_t kFew = 8;
  static constexpr int32_t kGuesses = 12;

  T& team_;
  const Distribution& p_;
  const RowWorkspace& workspace_;
  const ElementList list_;
  const int32_t num_tiles_;
  const WeightFunction weight_;
  const float above_all_;

  uint64_t need_ = 0;
  bool by_weight_ = false;
  float low_ = 0;
  float high_ = 0;
  Tally at_low_;
  Tally at_high_;
  bool counted_at_low_ = false;  // the tallies count the elements >= low

  bool gave_up_ = false;  // never reset: later answers would rest on missing elements

  bool listed_ = false;  // the list holds the elements of a bracket
  int32_t num_listed_ = 0;
  float list_floor_ = 0;  // the low end of the bracket
  float list_end_ = 0;    // the high end
  MassesAtEnd masses_;
  Tally base_;  // the tally of the elements above the bracket
};

}  // namespace specd
