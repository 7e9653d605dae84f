// PlaceDecision holds the numbers behind the verdict of one place of a draft, for traces.
//
// A round that is recorded gives each task room for one PlaceDecision per place
// (RoundBatch::decisions). A processor that keeps no records leaves it as it was: `judged` is
// false. Nothing here changes an answer. Plain data and pure functions.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"
#include "kernels/core/draft.h"
#include "kernels/core/philox.h"
#include "kernels/core/types.h"

namespace specd {

// The value of a coin that was not drawn. Coins are below 2^53.
inline constexpr uint64_t kNoCoin = ~uint64_t{0};

// The position of a place that has no record. Positions are below 2^31.
inline constexpr uint32_t kNoPosition = ~uint32_t{0};

// Coins in [low, high) draw the same id. Empty: unknown.
struct CoinInterval {
  uint64_t low = 0;
  uint64_t high = 0;
};

// The step of CONTRACT §3 that made p of a draft token 0. kNone: p is above 0, or was not computed.
enum class ZeroStep : uint32_t {
  kNone = 0,
  kForced = 1,      // the thinking budget forces another id
  kGrammar = 2,     // step 1: the mask of the sequence's constraint
  kMask = 3,        // step 1: a mask of the engine
  kAllowed = 4,     // step 1: allowed_token_ids
  kDisallowed = 5,  // step 1: another list of ids
  kMinTokens = 6,   // step 3: an end before min_tokens
  kBanned = 7,      // steps 5 and 6: bad words, n-grams and custom processors
  kRow = 8,         // the row itself, with its bias: -inf, or another id has +inf
  kMinP = 9,        // the filters
  kTopK = 10,
  kTopP = 11,
  kTopKOrTopP = 12,  // both are on, and the record does not tell which one cut first
  kUnderflow = 13,   // 2^((l - max) * scale) rounds to 0
};

// The integers of one inverse-CDF draw (CONTRACT §9.4): the drawn tile's part of the scope, and the
// drawn element's part of the tile.
struct DrawFacts {
  uint64_t total = 0;  // of the scope; 0: one id has everything, so every coin draws it
  uint64_t before = 0;
  uint64_t weight = 0;
  // Inside the tile; tile_total = 0: `before` and `weight` are the element's own.
  uint64_t tile_total = 0;
  uint64_t tile_before = 0;
  uint64_t tile_weight = 0;
};

struct PlaceDecision {
  bool judged = false;  // the round looked at this place; else only position and draft are set
  bool stands = false;  // the draft token was accepted
  bool bad_target = false;
  bool bad_draft = false;
  TokenId token = kNoToken;  // the token that the round emitted here
  // The draft token x: p(x) = p_weight / p_mass, and q(x) likewise; a mass of 0: not computed. A
  // place of a tree has several draft tokens: x is the last one that was judged.
  float p_weight = 0;
  float q_weight = 0;
  double p_mass = 0;
  double q_mass = 0;
  uint64_t accept_coin = kNoCoin;  // `target_only`: the TREE coin
  // `block`: P before this place's token, and the bound that the accept coin must be below for the
  // draft up to this token to stand. In a tree, of x: `tree` t / d, `target_only` the sum of p up
  // to it. A bound below 0: the walk did not come here, or it left the bound out (RecordsBounds).
  double prefix = 1;
  double bound = -1;
  // The draw of `token`, if it was drawn. residual_mass below 0: it was drawn from p.
  uint64_t draw_coin = kNoCoin;
  Purpose draw_purpose = Purpose::kSample;
  // The place and its draft token as the processor knew them, also if it never came here. If a task
  // leaves them to the processor (NeedsResolve), only the processor knows them.
  uint32_t position = kNoPosition;
  CoinInterval draw_interval;
  double residual_mass = -1;
  float token_weight = 0;  // p(token) = token_weight / p_mass of the place
  TokenId draft = kNoToken;
  // Node `place` of the draft, likewise: the token that place + 1 follows, and its parent.
  TokenId node = kNoToken;
  int32_t parent = kRoot;
  ZeroStep zero_step = ZeroStep::kNone;  // of the draft token x
  // The sum of min(p, q) over all ids, and p of q's best id. A round reads too little for them, so
  // the recorder computes them from copied rows (check_drafts). Below 0: not computed.
  double overlap = -1;
  double best_draft_p = -1;
};

// Whether the record of a task of `block` has the bound before each sampled token. One task in 32
// has them, because a plain task seldom makes the pass that such a bound takes. No coin and no row
// has a say, so the recorded bounds are a fair sample. No coin has purpose 0
// (docs/ALGORITHMS.md, "block").
SPECD_INLINE bool RecordsBounds(uint64_t seed, uint32_t round_base) {
  const PhiloxWords words = Philox4x32({{0, round_base, 0, 0}}, static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32));
  return words.x[0] % 32 == 0;
}

// The coins that make the draw of `facts`.
SPECD_INLINE CoinInterval IntervalOf(const DrawFacts& facts) {
  using Wide = unsigned __int128;
  constexpr uint64_t kCoins = uint64_t{1} << kCoinBits;
  if (facts.total == 0) return {0, kCoins};
  const auto ceil_div = [](Wide x, uint64_t y) { return static_cast<uint64_t>((x + y - 1) / y); };
  uint64_t first = 0;
  uint64_t last = facts.weight;
  if (facts.tile_total != 0) {
    first = ceil_div(Wide{facts.tile_before} * facts.weight, facts.tile_total);
    last = ceil_div(Wide{facts.tile_before + facts.tile_weight} * facts.weight, facts.tile_total);
  }
  return {ceil_div(Wide{facts.before + first} * kCoins, facts.total),
          ceil_div(Wide{facts.before + last} * kCoins, facts.total)};
}

}  // namespace specd
