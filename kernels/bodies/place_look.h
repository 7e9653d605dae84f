// PlaceLook holds what the decision of a task asks about one place and the token that it emits
// there.
//
// A look is a pure function of the place and its verdict. A team may therefore look at one place
// after another, or at all places at the same time. docs/ALGORITHMS.md, "Chains".
#pragma once

#include "kernels/bodies/chain_rows.h"

namespace specd {

// The bytes have no gaps, so lanes can pass a look on word by word.
struct PlaceLook {
  PlaceVerdict place;
  TokenId token = kNoToken;    // the token to emit if the verdict is kStands or kEnds
  int32_t invalid_drafts = 0;  // kEnds: the draft tokens of the place that cannot be kept
  bool draft_ends = false;     // kStands: the draft has no token at this place
  bool emits = false;          // the verdict asks for the token
  bool allowed = false;        // the token passes the last check
  bool is_point = false;       // the token is +inf in its row

  // Whether the draft token stands and can be emitted.
  SPECD_INLINE bool Passes() const {
    return place.verdict == Verdict::kStands && allowed && !draft_ends;
  }
};

// The last check before an id is emitted at a place, and whether the id is +inf in its row. `max`
// is the row's largest element, or +inf if it is not known.
template <Team T, typename CoinSource>
SPECD_HD void LookAtToken(const ChainRows<T, CoinSource>& rows, int32_t place, PlaceLook* look,
                          float max = kInfinity) {
  const bool has_rows = rows.task().draft.target_argmax == nullptr;
  look->allowed = !has_rows || rows.MayEmit(place, look->token);
  if (!look->allowed || !has_rows || rows.task().kind != TaskKind::kVerify) return;
  if (max != kInfinity) return;
  const Row row = rows.TargetRow(place);
  look->is_point = row.place.forced == kNoToken && ElementOf(row, look->token) == kInfinity;
}

// The draft tokens of a place that cannot be kept.
template <Team T, typename CoinSource>
SPECD_HD int32_t NumInvalid(const ChainRows<T, CoinSource>& rows, int32_t place) {
  const Draft& draft = rows.task().draft;
  const auto is_invalid = [&](int32_t node) {
    const TokenId token = rows.DraftToken(node);
    return token != kNoToken && !rows.MayEmit(place, token);
  };
  if (draft.parents == nullptr) return place < draft.num_nodes && is_invalid(place) ? 1 : 0;
  int32_t num_invalid = 0;
  for (int32_t node = NextChild(draft, place, kRoot); node != kRoot;
       node = NextChild(draft, place, node)) {
    num_invalid += is_invalid(node) ? 1 : 0;
  }
  return num_invalid;
}

template <Team T, typename CoinSource>
SPECD_HD PlaceLook LookAtPlace(const ChainRows<T, CoinSource>& rows, int32_t i,
                               const PlaceVerdict& place, float max = kInfinity) {
  PlaceLook look{place};
  const bool stands = place.verdict == Verdict::kStands;
  const bool ends = place.verdict == Verdict::kEnds;
  look.draft_ends = stands && rows.DraftEndsAt(i);
  look.emits = ends || (stands && !look.draft_ends);
  if (!look.emits) return look;
  look.token = stands ? rows.DraftToken(i) : place.token;
  LookAtToken(rows, i, &look, max);
  if (ends) look.invalid_drafts = NumInvalid(rows, i);
  return look;
}

// The looks at the places of a task whose places were judged ahead, for a team whose lanes look.
template <Team T, typename CoinSource>
class LooksAhead {
 public:
  SPECD_INLINE explicit LooksAhead(const ChainRows<T, CoinSource>& rows) : rows_(rows) {}

  // Each lane requests the facts of a place together with its draft token. Returns the number of
  // tokens before the end of the draft, at whose place a walk ends.
  SPECD_INLINE int32_t Request() {
    return rows_.team().FirstWhere(rows_.num_drafts() + 1, [&](int32_t i) {
      if (place_ < 0) facts_ = rows_.FactsAhead(i);
      if (place_ < 0) place_ = i;
      return rows_.DraftEndsAt(i);
    });
  }

  // REQUIRES: the draft does not end before place i.
  SPECD_INLINE PlaceLook operator()(int32_t i) const {
    const AheadFacts facts = i == place_ ? facts_ : rows_.FactsAhead(i);
    return LookAtPlace(rows_, i, facts.place, facts.max);
  }

 private:
  const ChainRows<T, CoinSource>& rows_;
  AheadFacts facts_;
  int32_t place_ = -1;  // of this lane's facts
};

}  // namespace specd
