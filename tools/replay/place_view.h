// PlaceView is one place of a recorded draft with the numbers that a person asks for: p, q, the
// coin, the verdict and why.
//
// If the backend kept no decisions, the verdict comes from the outcome. Pure functions; a view
// refers to the task that it was made of.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

// The first five values are those of tools/replay/report/DATA.md.
enum class ShownVerdict : uint32_t {
  kAccepted = 0,
  kRejected = 1,
  kEnds = 2,  // there is no draft token
  kBadTarget = 3,
  kBadDraft = 4,
  kNotJudged = 5,
};

struct PlaceView {
  const TraceTask* task = nullptr;
  int32_t place = 0;
  int32_t depth = 0;       // the place of its token in the round; of a chain: place
  bool is_on_path = true;  // of the accepted tokens; of a chain: always
  bool is_leaf = false;    // of a tree: no child follows
  PlaceDecision decision;  // judged is false if there is no record
  // A token that was verified. In a tree: the child that was accepted, or the one that was judged
  // last.
  bool has_draft = false;
  int32_t node = kRoot;      // of that token, its place in the draft as the engine numbered it
  TokenId draft = kNoToken;  // as recorded, also after the end of the draft
  DraftKind kind = DraftKind::kOneHot;
  uint32_t num_drawn = 0;  // NumDrawn of the task
  ShownVerdict verdict = ShownVerdict::kNotJudged;
  TokenId token = kNoToken;  // that the round emitted here
  // Probabilities of the draft token; empty: not computed.
  std::optional<double> p;
  std::optional<double> q;
  std::optional<double> accept_coin;
  std::optional<double> token_p;
  std::optional<double> draw_coin;

  // p / q; infinite if only q is 0; empty if p or q is.
  std::optional<double> Ratio() const;
};

// `info` is that of the trace. REQUIRES: 0 <= place <= task.tokens.size().
PlaceView ViewPlace(const TraceInfo& info, const TraceTask& task, int32_t place);
// The same with a decision from a replay in place of the recorded one.
PlaceView ViewPlace(const TraceInfo& info, const TraceTask& task, int32_t place,
                    const PlaceDecision& decision);

// The places of the walk: of a chain all, of a tree those of the accepted path. `decisions`: the
// recorded ones, or those of a replay.
std::vector<PlaceView> ViewWalk(const TraceInfo& info, const TraceTask& task,
                                std::span<const PlaceDecision> decisions);

// The recorded decisions, with the steps of a replay where an earlier program recorded none.
std::vector<PlaceDecision> DecisionsOf(const TraceTask& task,
                                       std::span<const PlaceDecision> replayed);

// The number of places: one more than the draft tokens.
inline int32_t NumPlaces(const TraceTask& task) {
  return static_cast<int32_t>(task.tokens.size()) + 1;
}

// "accepted", "rejected", "end of draft", "bad target row", "bad draft row", "not judged".
std::string_view NameOf(ShownVerdict verdict);

// The distribution that the token of the place was drawn from, in words.
std::string_view DrawnFrom(const PlaceView& view);

// A sentence with its numbers: "rejected: u = 0.83 is not below p/q = 0.41".
std::string Why(const PlaceView& view);
// The same without numbers, so that equal reasons are equal texts.
std::string WhyInWords(const PlaceView& view);

}  // namespace specd::replay
