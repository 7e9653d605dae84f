#include "tools/bench/needed_rows.h"

#include <algorithm>
#include <set>

namespace specd::bench {
namespace {

bool HasEarlierTwin(const Draft& draft, int32_t child) {
  for (int32_t node = 0; node < child; ++node) {
    if (draft.tokens[node] == draft.tokens[child] &&
        PlaceOf(draft, node) == PlaceOf(draft, child)) {
      return true;
    }
  }
  return false;
}

// The nodes whose places were read. `traversal` goes down to the children of a place in turn, as
// far as the one that the place's record names, the other methods only along the path. A second
// sibling with one id has nothing left: its place is not read, and `traversal` looks at the next.
NodeSet PlacesRead(const RoundSet& set, int32_t round, int32_t sequence,
                   const RoundAnswer& answer) {
  const auto first = static_cast<size_t>(sequence * set.shape().rows_of_sequence());
  const Draft& draft = set.task(round, sequence).draft;
  NodeSet nodes = 0;  // before the places that are read; the root's place always is
  for (int32_t i = 0; i < answer.outcomes[static_cast<size_t>(sequence)].num_accepted; ++i) {
    nodes |= NodeSet{1} << answer.path[first + static_cast<size_t>(i)];
  }
  for (int32_t place = 0;
       set.verify_case().method == VerifyMethod::kTraversal && place <= draft.num_nodes; ++place) {
    if (place > 0 && !Holds(nodes, NodeBefore(place))) continue;
    const PlaceDecision& record = answer.decisions[first + static_cast<size_t>(place)];
    if (record.draft == kNoToken) continue;
    for (int32_t child = NextChild(draft, place, kRoot); child != kRoot;
         child = NextChild(draft, place, child)) {
      if (!HasEarlierTwin(draft, child)) nodes |= NodeSet{1} << child;
      if (record.bound > 0 && draft.tokens[child] == record.draft) break;
    }
  }
  return nodes;
}

}  // namespace

std::vector<MemorySpan> NeededRows(const RoundSet& set, int32_t round, const RoundAnswer& answer) {
  const VerifyCase& of = set.verify_case();
  const bool has_drafts = set.draft().num_rows > 0;
  std::vector<MemorySpan> spans;
  const auto add = [&](const TensorView& tensor, uint32_t row) {
    const auto size_bytes = static_cast<size_t>(tensor.vocab_size * SizeBytes(tensor.dtype));
    spans.push_back({RowAt(tensor, row).data, size_bytes});
  };
  const bool uses_q = of.method != VerifyMethod::kExactMatch &&
                      of.method != VerifyMethod::kTargetOnly && has_drafts;
  for (int32_t s = 0; s < set.shape().batch; ++s) {
    const Draft& draft = set.task(round, s).draft;
    if (draft.parents != nullptr) {
      const NodeSet nodes = PlacesRead(set, round, s, answer);
      for (int32_t place = 0; place <= draft.num_nodes; ++place) {
        if (place > 0 && !Holds(nodes, NodeBefore(place))) continue;
        add(set.target(), draft.target_rows[place]);
        const int32_t child = NextChild(draft, place, kRoot);
        if (uses_q && child != kRoot && IsDrawn(draft, child))
          add(set.draft(), draft.draft_rows[child]);
      }
      continue;
    }
    const int32_t num_accepted = answer.outcomes[static_cast<size_t>(s)].num_accepted;
    // A block's acceptance depends on all of its places, a token's only on those before it.
    const int32_t last_pair = of.method == VerifyMethod::kBlock
                                  ? draft.num_nodes - 1
                                  : std::min(num_accepted, draft.num_nodes - 1);
    for (int32_t i = 0; i <= std::max(num_accepted, uses_q ? last_pair : 0); ++i) {
      add(set.target(), draft.target_rows[i]);
      // With a side channel a draft row is read only if its residual is drawn from.
      const bool has_pair = i <= last_pair && (!of.side_channel || i == num_accepted);
      if (uses_q && has_pair) add(set.draft(), draft.draft_rows[i]);
    }
  }
  return spans;
}

int32_t NumRowsGiven(const RoundSet& set) {
  const Draft& draft = set.task(0, 0).draft;
  std::set<uint32_t> of_draft;
  if (set.draft().num_rows > 0)
    of_draft.insert(draft.draft_rows, draft.draft_rows + set.shape().draft);
  return set.shape().rows_of_sequence() + static_cast<int32_t>(of_draft.size());
}

}  // namespace specd::bench
