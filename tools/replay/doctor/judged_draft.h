// JudgedDraft is one draft token that a round judged, with the numbers that the doctor sums.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

struct JudgedDraft {
  int32_t node = 0;
  int32_t place = 0;
  TokenId id = 0;
  bool is_drawn = false;  // from q; else it was chosen without chance
  bool is_accepted = false;
  // Empty: not computed, as with `greedy`.
  std::optional<double> p;
  std::optional<double> q;
  std::optional<double> coin;
  // That the token is accepted, over the coin: of `token`, and of the other methods where it was
  // judged by a coin of its own. Empty: the walk did not come here, or no coin decides.
  std::optional<double> share;
  // share was compared with the coin. For `block` this may be without an effect on `is_accepted`.
  bool passes = false;
  std::optional<double> residual_mass;  // of `token`, after a rejection
  bool is_reached = false;              // all drafts before it were accepted
  // That the method accepts it once it is reached, over the coins.
  std::optional<double> probability;
  ZeroStep zero_step = ZeroStep::kNone;
};

// The judged drafts of a chain in order. A place after the first rejection was not judged, except
// by `block`, which judges all. `decisions`: the recorded ones, or those of a replay. `residuals`:
// of each place the sum of (P p - q)+; empty, or below 0: not known.
std::vector<JudgedDraft> JudgedChain(const TraceInfo& info, const TraceTask& task,
                                     std::span<const PlaceDecision> decisions,
                                     std::span<const double> residuals);

// Whether filters or a narrow vocabulary may leave ids out of q.
bool IsWholeQ(const TraceRound& round, const TraceTask& task);

}  // namespace specd::replay
