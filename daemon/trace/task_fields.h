// VisitDraftArrays and VisitTaskValues list the fields of a task that a trace holds.
//
// The copy of a round, its record, the record's names on disk and the replay take these fields from
// here. A member of Draft or Task that is neither listed nor named below does not compile.
#pragma once

#include <cstddef>

#include "daemon/trace/trace_record.h"
#include "kernels/core/draft.h"
#include "kernels/core/round.h"

namespace specd {

namespace trace_internal {
struct AnyValue {
  template <class T>
  operator T() const;  // for unevaluated code
};
}  // namespace trace_internal

// The number of members of a struct without constructors. A base class counts as one.
template <class T, class... Values>
constexpr size_t NumMembers() {
  if constexpr (requires { T{Values()..., trace_internal::AnyValue()}; }) {
    return NumMembers<T, Values..., trace_internal::AnyValue>();
  } else {
    return sizeof...(Values);
  }
}

// visit(name on disk, member of Draft, member of TraceTask, num_more): the array has num_more more
// elements than the draft has nodes.
template <class V>
constexpr void VisitDraftArrays(V&& visit) {
  visit("tokens", &Draft::tokens, &TraceTask::tokens, 0);
  visit("parents", &Draft::parents, &TraceTask::parents, 0);
  visit("kinds", &Draft::kinds, &TraceTask::kinds, 0);
  visit("target_rows", &Draft::target_rows, &TraceTask::target_rows, 1);
  visit("draft_rows", &Draft::draft_rows, &TraceTask::draft_rows, 0);
  visit("draft_weights", &Draft::draft_weights, &TraceTask::draft_weights, 0);
  visit("draft_masses", &Draft::draft_masses, &TraceTask::draft_masses, 0);
  visit("target_argmax", &Draft::target_argmax, &TraceTask::target_argmax, 1);
}

// visit(name on disk, member of Task, member of TraceTask).
template <class V>
constexpr void VisitTaskValues(V&& visit) {
  visit("method", &Task::method, &TraceTask::method);
  visit("target_scale", &Task::target_scale, &TraceTask::target_scale);
  visit("draft_scale", &Task::draft_scale, &TraceTask::draft_scale);
  visit("seed", &Task::seed, &TraceTask::seed);
  visit("first_position", &Task::first_position, &TraceTask::first_position);
  visit("round_base", &Task::round_base, &TraceTask::round_base);
  visit("min_tokens", &Task::min_tokens, &TraceTask::min_tokens);
  visit("drafts_by_slot", &Task::drafts_by_slot, &TraceTask::drafts_by_slot);
  visit("parents_by_slot", &Task::parents_by_slot, &TraceTask::parents_by_slot);
  visit("continues", &Task::continues, &TraceTask::continues);
  visit("draft_edits", &Task::draft_edits, &TraceTask::draft_edits);
  visit("target_filters", &Task::target_filters, &TraceTask::target_filters);
  visit("draft_filters", &Task::draft_filters, &TraceTask::draft_filters);
  visit("lossy", &Task::lossy, &TraceTask::lossy);
  visit("rng", &Task::rng, &TraceTask::rng);
  visit("rng_offset", &Task::rng_offset, &TraceTask::rng_offset);
}

namespace trace_internal {

constexpr size_t NumDraftArrays() {
  size_t count = 0;
  VisitDraftArrays([&count](const char*, auto, auto, int) { ++count; });
  return count;
}
constexpr size_t NumTaskValues() {
  size_t count = 0;
  VisitTaskValues([&count](const char*, auto, auto) { ++count; });
  return count;
}

// Beside the arrays: num_nodes, which is the size of `tokens`.
static_assert(NumMembers<Draft>() == NumDraftArrays() + 1);
// Beside the values: draft, edits, places, scores, coins and num_coins, which round_copy.cc and
// round_record.cc take apart; slot, which the sequence has; tree_status, which the outcome has; and
// kind, sampling, num_children and first_node, which are the same for every task of a round.
static_assert(NumMembers<Task>() == NumTaskValues() + 12);
static_assert(NumMembers<SequenceEdits>() == 4 && NumMembers<PlaceEdits>() == 7);

}  // namespace trace_internal
}  // namespace specd
