// SequenceGrammar holds the constraint of one sequence: the masks of a draft's places, and the
// state after the kept tokens.
//
// For a round, Fill asks the matcher for the mask of each place: it advances over the draft tokens
// and goes back. A token that the constraint forbids is not removed; the mask gives it probability
// 0, and the method rejects it (CONTRACT §2). Commit advances over kept tokens only. A copy is
// independent (FORK). An empty object constrains nothing.
//
// A place whose mask meets a limit of the grammar engine gets a row that allows nothing. If the
// round reaches that place, its sequence ends there, and FaultAt names the limit.
//
//   auto grammar = SequenceGrammar::Create(compiled->NewMatcher(options), outputs, limits);
//   int32_t place = 0;
//   while (!grammar->Fill(task.draft, places, &place, &slice)) slice = LetOthersGoFirst();
//   // The rows stay valid until Commit, DropRows or the next draft's Fill.
//   grammar->Commit(kept);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/core/draft.h"
#include "kernels/core/edits.h"
#include "kernels/core/sequence_round.h"
#include "speculative/grammar/matchers/grammar_matcher.h"

namespace specd {

class SequenceGrammar {
 public:
  SequenceGrammar() = default;
  // `outputs` were generated already. INVALID_ARGUMENT names the first that the constraint forbids.
  static absl::StatusOr<SequenceGrammar> Create(std::unique_ptr<grammar::GrammarMatcher> matcher,
                                                std::span<const TokenId> outputs,
                                                const BackendLimits& limits);
  SequenceGrammar(const SequenceGrammar& other);
  SequenceGrammar(SequenceGrammar&&) = default;
  SequenceGrammar& operator=(SequenceGrammar other) noexcept;

  bool empty() const { return matcher_ == nullptr; }
  // Stands after the kept tokens. REQUIRES: !empty().
  const grammar::GrammarMatcher& matcher() const { return *matcher_; }

  // The matcher's StateNumber at a place of the draft that Fill had last; 0 where a limit was met.
  // Traces record it.
  uint64_t StateAt(int32_t place) const { return states_[place]; }

  // Sets grammar_mask of every place of the draft, so no place is without a constraint. If a token
  // before a place is forbidden or none, the place gets the mask of the place where its path broke.
  // Where only stop ids may follow, min_tokens yields (CONTRACT §3).
  // Goes on at the place *next, which is 0 for a new draft. False: the slice is used up, and the
  // places from *next on have no mask yet.
  bool Fill(const Draft& draft, PlaceEdits* places, int32_t* next, grammar::WorkSlice* slice);

  // Sets grammar_mask of the place after a prefix, for drafts that specd draws itself. The place
  // has the mask that Fill gives it at verification. The row is valid as long as the returned
  // object. Nothing: the slice is used up; ask again.
  std::optional<grammar::MaskRow> FillAfter(std::span<const TokenId> prefix, PlaceEdits* place,
                                            grammar::WorkSlice* slice);

  // Lets go of the rows of the last Fill, whose places are not used any more.
  void DropRows();

  // Returns the number of tokens up to the one that ends the text, that token included; 0: none
  // does. A token ends the text if it is a stop id, or if the complete text cannot continue after
  // it.
  int32_t FindEnd(std::span<const TokenId> tokens);

  // Advances over kept tokens and returns how many it took. Fewer than all: the constraint forbids
  // one, which only a fault of a matcher can cause; the sequence must end before it.
  size_t Commit(std::span<const TokenId> tokens);

  // Why a place of the last draft has no mask.
  grammar::MatcherFault FaultAt(size_t place) const { return faults_[place]; }
  // Why Commit took fewer than all.
  grammar::MatcherFault commit_fault() const { return matcher_->fault(); }

 private:
  // Sets the mask of the place that the matcher has reached.
  void SetMask(const grammar::MaskRow& row, PlaceEdits* place);
  // Returns the place whose mask this place has, itself or the one where its path broke. The
  // matcher is moved to a place that has its own. kNoPlace: it met a limit on the way.
  int32_t SourceOf(const Draft& draft, int32_t place);
  // Lets nothing follow at a place to which the matcher could not advance.
  void Forbid(int32_t place, PlaceEdits* edits);
  // Moves the matcher to the place after node `to`, all of whose ancestors are allowed. False if
  // the matcher does not take one of them.
  bool MoveTo(const Draft& draft, int32_t to);

  std::unique_ptr<grammar::GrammarMatcher> matcher_;
  int32_t vocab_size_ = 0;
  // The masks of the places of the last draft. Rows are held from Fill to Commit or DropRows: the
  // cache's bound of bytes counts no row that a waiting sequence would hold.
  std::vector<grammar::MaskRow> rows_;
  std::vector<uint64_t> states_;  // as numbers
  std::vector<grammar::MatcherFault> faults_;
  // Scratch of Fill: the nodes that the matcher has accepted, and for each place the place whose
  // mask it has.
  std::vector<int32_t> path_;
  std::vector<int32_t> place_of_;
};

// The words of a fault for the engine.
Refusal RefusalOf(grammar::MatcherFault fault);

}  // namespace specd
