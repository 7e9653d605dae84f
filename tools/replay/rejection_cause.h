// CauseOfRejection says why a judged draft token was rejected, in words that many tokens share.
//
// The doctor counts the words, and the page of `report` colours by the kind and filters by the
// words. zero_cause.h has the numbers of one token. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

// The order is that of `cause_kind` in report/DATA.md.
enum class CauseKind : uint8_t {
  kCoin,        // the coin was not below the share
  kOtherToken,  // the place has another token: the argmax, or the one that was drawn
  kMask,        // p is 0: a grammar or a list does not allow the token
  kFilter,      // p is 0: min_p, top_k or top_p
  kRule,        // p is 0: another rule, the row itself, a step that was not recorded, or not known
};

struct RejectionCause {
  CauseKind kind = CauseKind::kCoin;
  std::string words;
};

// `p`: of the draft token, if it was computed. `step`: the recorded step that made it 0.
RejectionCause CauseOfRejection(VerifyMethod method, std::optional<double> p, ZeroStep step);

}  // namespace specd::replay
