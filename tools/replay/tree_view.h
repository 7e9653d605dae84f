// ViewTree gives each node of a recorded tree with the numbers that a person asks for: p, q, the
// share t/d of the target that its siblings left, the coin, and its fate.
//
// The numbers are computed from the rows in double precision by the definition of CONTRACT §5, one
// dense row for each place, and share no code with the bodies of kernels/. Without rows a node has
// its fate and its coin, and the child that was judged last the recorded step. Use it for a few
// rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/replay/draft_tree.h"
#include "tools/replay/place_rows.h"

namespace specd::replay {

struct NodeView {
  int32_t node = kRoot;
  int32_t parent = kRoot;
  std::string branch;  // the lines of the drawing before the node
  DraftKind kind = DraftKind::kOneHot;
  NodeFate fate = NodeFate::kNotJudged;
  std::optional<double> p;
  std::optional<double> q;
  std::optional<double> d;  // the proposal: 1 for a one-hot token, q, or q over the rest
  // `tree`: t / d. `traversal`: the probability with which the path to the node is accepted when
  // its place is a leaf; empty: its place was none. `target_only`: the sum of p up to the node.
  std::optional<double> bound;
  ZeroStep zero_step = ZeroStep::kNone;  // that made p 0, as far as it was recorded
  std::optional<double> coin;            // that was compared with `bound`
};

// In depth-first order, children as they are judged, then those outside the vocabulary. `rebuilder`
// may be null: no rows. REQUIRES: CheckTask passed; task i of the batch is `task`.
absl::StatusOr<std::vector<NodeView>> ViewTree(const TraceTask& task, int32_t vocab_size,
                                               PlaceRows* rows, const RoundRebuilder* rebuilder,
                                               size_t i);

std::string_view NameOf(DraftKind kind);

}  // namespace specd::replay
