// CauseOfZero names the step of CONTRACT §3 that made the target's p of a draft token 0, with the
// threshold of the step and the token's value.
//
// The step is the recorded one, or that of a replay. The value needs the recorded rows: each filter
// is added to the ones before it. Use it where a draft token was rejected with p = 0. One thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/core/decision.h"
#include "tools/replay/place_rows.h"
#include "tools/replay/place_view.h"

namespace specd::replay {

struct ZeroCause {
  ZeroStep step = ZeroStep::kNone;  // kNone: p is not 0, or nothing names the step
  // kMinP: min_p times the largest p, and p before the filters. kTopK: k, and the rank. kTopP:
  // top_p, and the mass of the ids before it. kMinTokens: min_tokens, and the tokens before the
  // place. kGrammar, kMask, kAllowed, kDisallowed: the value is the number of allowed ids.
  std::optional<double> threshold = {};
  std::optional<double> value = {};
  std::string steps_on = {};  // if nothing names the step: the steps that may be the cause
};

// The cause of a place of task `i` of the rebuilder's batch; `round` is null without rows. `rows`
// is left as PlaceRows::Read of the place leaves it.
absl::StatusOr<ZeroCause> CauseOfZero(const PlaceView& view, PlaceRows* rows,
                                      const RoundRebuilder* round, size_t i);

// A sentence with its numbers: "p is 0 by top_k: its rank is 16, and 10 ids stay". Empty: p is not
// 0.
std::string TextOf(const ZeroCause& cause);

}  // namespace specd::replay
