// SampleGumbel draws an id as SGLang's deterministic mode does: the argmax of ln p + noise.
//
// docs/ALGORITHMS.md, "SGLang's generator". The noise of an id belongs to the id, so two rows that
// are close to each other give the same id with a high probability.
#pragma once

#include "kernels/bodies/distribution.h"
#include "kernels/core/gumbel.h"

namespace specd {

struct GumbelPlace {
  uint64_t seed = 0;
  uint32_t position = 0;  // SGLang's
};

// The best id of those that were looked at, the lowest one among equals.
struct GumbelBest {
  TokenId id = kNoToken;
  double score = 0;

  SPECD_INLINE void Take(TokenId other, double other_score) {
    if (id != kNoToken && other_score <= score) return;
    id = other;
    score = other_score;
  }
};

// Whether an id with this noise may lie above the best score by `lead`. A cheap bound: the noise is
// at most -ln(1 - x), since -ln x >= 1 - x.
SPECD_INLINE bool MayWin(uint32_t hash, double lead) {
  if (lead <= 0.0) return true;
  constexpr float kBitsOfE = 0x1.715476p+0f;  // log2 e
  const float bound = Exp2(0.0f - static_cast<float>(lead) * kBitsOfE) * 1.001f;
  return static_cast<float>(~hash) * 0x1p-32f <= bound + 0x1p-30f;
}

// Takes the ids of one tile. `best` may hold one of another tile.
SPECD_INLINE void TakeTile(const Distribution& p, const GumbelPlace& place, int32_t tile,
                           GumbelBest* best) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  const int32_t end = p.row.view.vocab_size;
  const TokenId first = tile * kTileSize;
  for (TokenId id = first; id < end && id < first + kTileSize; ++id) {
    const float l = ElementOf(p.row, id);
    const float exponent = (l - p.max) * p.scale;
    if (!(exponent >= -126.0f)) continue;  // its weight is 0 (Exp2), so it is never drawn
    const double log_p = static_cast<double>(exponent) * kLn2;
    const double lead = best->id == kNoToken ? 0.0 : best->score - log_p;
    if (lead > kGumbelMax + 1e-9) continue;
    const uint32_t hash = SglangHash(place.seed, place.position, static_cast<uint32_t>(id));
    if (MayWin(hash, lead)) best->Take(id, log_p + GumbelOfHash(hash));
  }
}

// kNoToken: the row changed while it was read. REQUIRES: !p.bad(); p has no filters; `tallies` has
// an element for each tile.
template <Team T>
SPECD_BODY TokenId SampleGumbel(T& team, const Distribution& p, const GumbelPlace& place,
                                Tally* tallies) {
  if (p.point != kNoToken) return p.point;
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  GumbelBest mine;
  ForEachTile(team, num_tiles, [&](int32_t t) {
    const TokenId before = mine.id;
    TakeTile(p, place, t, &mine);
    // A score as bits; count 0: the tile has no id that is better than those before it.
    Tally tally;
    if (mine.id != before) {
#if defined(__CUDA_ARCH__)
      tally.amount = static_cast<uint64_t>(__double_as_longlong(mine.score));
#else
      tally.amount = __builtin_bit_cast(uint64_t, mine.score);
#endif
      tally.count = static_cast<uint64_t>(mine.id) + 1;
    }
    team.Publish(tally, &tallies[t]);
  });
  GumbelBest best;
  for (int32_t t = 0; t < num_tiles; ++t) {
    if (tallies[t].count == 0) continue;
#if defined(__CUDA_ARCH__)
    const double score = __longlong_as_double(static_cast<int64_t>(tallies[t].amount));
#else
    const double score = __builtin_bit_cast(double, tallies[t].amount);
#endif
    best.Take(static_cast<TokenId>(tallies[t].count - 1), score);
  }
  return best.id;
}

}  // namespace specd
