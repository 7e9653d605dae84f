// The facts of one sequence's part of one round, as diff compares them.
//
// StepDigest hashes them, and CompareSteps finds the first place where they differ. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "daemon/trace/trace_codec.h"
#include "daemon/trace/trace_fields.h"
#include "daemon/trace/trace_record.h"

namespace specd::replay {

// One number for each place that was judged; empty: they were not recorded.
using Facts = std::vector<uint64_t>;

Facts TargetHashes(const TraceRound& round, const TraceTask& task);
Facts DraftHashes(const TraceRound& round, const TraceTask& task);
Facts SharesP(const TraceTask& task);
Facts SharesQ(const TraceTask& task);
Facts ArgmaxIds(const TraceTask& task);
// The states of a grammar are numbers of one process, so masks alone are compared.
Facts MaskHashes(const TraceRound& round, const TraceTask& task);
Facts ForcedIds(const TraceTask& task);

// The recorded hashes of the token edits, and without them those of the lists (parameter_hash.h).
// Nothing: neither was recorded. REQUIRES: the task has no place behind the end of its draft.
std::optional<uint64_t> EditsOf(const TraceRound& round, const TraceTask& task);
// Nothing too if the processor made them: it does so for drafts by slot.
std::optional<uint64_t> OverridesOf(const TraceRound& round, const TraceTask& task);
// True if the device had the draft tokens and no record has them.
bool LacksDraftTokens(const TraceTask& task);

// Whether a row of the tensor is part of the task's input.
inline bool UsesTarget(const TraceTask& task) { return !task.target_rows.empty(); }
bool UsesDraft(const TraceTask& task);

// Recorded or not.
bool HasMasks(const TraceTask& task);
inline bool HasLists(const TraceRound& round) { return round.level == TraceLevel::kRows; }
// Hashes all that the engine received but path and scores, and that of the backend which it did
// not.
uint64_t OutcomeHash(const TraceRound& round, const TraceTask& task);
// Nothing: the record has none, as that of a staged round whose engine asked for none.
std::optional<uint64_t> PathHash(const TraceTask& task);
std::optional<uint64_t> ScoresHash(const TraceTask& task);

// The members of an answer that an engine receives.
template <class V>
void VisitAnswer(V&& visit) {
  VisitFields(RecordType<TraceAnswer>{}, [&](const char* name, auto member) {
    if (std::string_view(name) != "sequence") visit(name, member);  // a number of the process
  });
}

// The members of a task that are parameters; the lists of edits are recorded with the rows only.
template <class V>
void VisitParameters(bool with_lists, V&& visit) {
  VisitFields(RecordType<TraceTask>{}, [&](const char* name, auto member) {
    const std::string_view known(name);
    for (const std::string_view wanted :
         {"method", "target_scale", "draft_scale", "round_base", "first_position", "min_tokens",
          "draft_edits", "lossy", "rates", "rng", "rng_offset", "target_filters", "draft_filters",
          "scores", "chosen", "penalties", "num_edits", "edits", "allowed"}) {
      const bool is_edit = wanted == "edits" || wanted == "allowed";
      if (known == wanted && (with_lists || !is_edit)) visit(name, member);
    }
  });
}

}  // namespace specd::replay
