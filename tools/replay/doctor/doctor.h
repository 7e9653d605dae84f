// Doctor examines a recording: acceptance beside its expectation, the causes of rejections, and
// what the engine or the drafter should do otherwise.
//
// A finding that is a fault is further from a right recording than four standard errors, or than
// the odds of that (DrawEvidence, AboveOne). README says what bounds false ones. Groups (places,
// sequences, times) are shown with their errors and raise no finding, because there are many of
// them. One thread.
//
//   Doctor doctor(&backend, text, filter);
//   while (...) doctor.Take(item, rows);
//   for (const Finding& finding : doctor.Findings()) Print(finding.sentence);
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/replay/doctor/draft_length.h"
#include "tools/replay/doctor/ngram_drafts.h"
#include "tools/replay/doctor/round_tests.h"
#include "tools/replay/doctor/row_tests.h"
#include "tools/replay/reason_counts.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/time_bins.h"
#include "tools/replay/token_text.h"

namespace specd::replay {

struct Group {
  std::string label;
  AcceptanceSum sum;
};

class Doctor {
 public:
  Doctor(ReplayBackend* backend, TokenText text, TraceFilter filter)
      : backend_(backend), text_(std::move(text)), filter_(std::move(filter)) {}

  // `rows` may be null. `item` is the next record of the recording.
  absl::Status Take(const TraceItem& item, const RowFileReader* rows);

  const RoundTests& round_tests() const { return round_tests_; }
  const RowTests* row_tests() const { return row_tests_ ? &*row_tests_ : nullptr; }
  const AcceptanceSum& all() const { return all_; }
  // What was accepted, against the recorded sums of min(p, q), where a trace has these and no rows.
  const AcceptanceSum& overlaps() const { return overlaps_; }
  // p of the token that an n-gram drafter would draft, 0 where it has none; beside it the sum of
  // min(p, q) at the same places.
  const MeanSum& ngram() const { return ngram_; }
  const MeanSum& ngram_gain() const { return ngram_gain_; }
  const DraftLength& lengths() const { return lengths_; }
  // Of rejected drafts that were reached.
  const std::map<std::string, uint64_t>& causes() const { return causes_; }
  uint64_t num_outside() const { return num_outside_; }  // drafts that end with an id outside V
  const ReasonCounts& without_rows() const { return without_rows_; }

  std::vector<Group> Places() const { return InOrder(places_); }
  std::vector<Group> Classes() const { return InOrder(classes_); }
  std::vector<Group> Contexts() const { return InOrder(contexts_); }
  std::vector<Group> Methods() const { return InOrder(methods_); }
  // The groups with the most drafts.
  std::vector<Group> Sequences() const { return Largest(sequences_); }
  std::vector<Group> GrammarStates() const { return Largest(grammar_states_); }
  std::vector<Group> Times() const;

 private:
  using Groups = std::map<std::string, AcceptanceSum>;
  static std::vector<Group> InOrder(const Groups& groups);
  static std::vector<Group> Largest(const Groups& groups);

  absl::Status Take(const TraceRound& round, const RowFileReader* rows);
  absl::Status TakeRows(const TraceRound& round, const RoundRebuilder& rebuilder, size_t task,
                        size_t in_batch);
  void TakeNumbers(const TraceRound& round, const TraceTask& task);
  absl::Status TakeTree(const TraceRound& round, const TraceTask& task,
                        const RoundRebuilder* rebuilder, size_t in_batch);
  void AddToGroups(const TraceRound& round, const TraceTask& task, const JudgedDraft& draft);
  void AddNgram(const TraceTask& task, size_t sequence, size_t in_batch, const JudgedDraft& draft,
                double overlap);
  void Confirm(const TraceRound& round, const TraceTask& task);
  bool IsAsked(const TraceRound& round, const TraceTask& task) const;

  ReplayBackend* const backend_;
  const TokenText text_;
  const TraceFilter filter_;
  std::optional<TraceInfo> info_;
  SequenceBook book_;
  RoundTests round_tests_;
  std::optional<RowTests> row_tests_;
  NgramDrafts ngrams_;
  DraftLength lengths_;
  AcceptanceSum all_;
  AcceptanceSum overlaps_;
  MeanSum ngram_;
  MeanSum ngram_gain_;
  uint64_t num_outside_ = 0;
  std::map<std::string, uint64_t> causes_;
  ReasonCounts without_rows_;
  Groups places_, sequences_, classes_, grammar_states_, contexts_, methods_;
  TimeBins<AcceptanceSum> times_{12};
};

}  // namespace specd::replay
