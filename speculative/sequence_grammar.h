// SequenceGrammar holds the constraint of one sequence: the masks of a draft's places, and the
// state after the kept tokens.
//
// For a round, Fill asks the matcher for the mask of each place: it advances over the draft tokens
// and goes back. A token that the constraint forbids is not removed; the mask gives it probability
// 0, and the method rejects it (CONTRACT §2). Commit advances over kept tokens only. A copy is
// independent (FORK). An empty object constrains nothing.
//
//   auto grammar = SequenceGrammar::Create(compiled->NewMatcher(options), outputs, limits);
//   grammar->Fill(task.draft, places);        // the rows stay valid until the next Fill
//   grammar->Commit(kept);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/core/draft.h"
#include "kernels/core/edits.h"
#include "speculative/grammar/grammar_backend.h"

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

  // Sets grammar_mask of every place of the draft. A place that no path can reach, because a token
  // before it is forbidden or is none, gets the mask of the place where its path broke: no place is
  // left without a constraint. Where only stop ids may follow, min_tokens yields (CONTRACT §3).
  void Fill(const Draft& draft, PlaceEdits* places);

  // Sets grammar_mask of the place after a prefix, for drafts that specd draws itself. The place
  // has the mask that Fill gives it at verification. The row is valid as long as the returned
  // object.
  grammar::MaskRow FillAfter(std::span<const TokenId> prefix, PlaceEdits* place);

  // The number of the tokens up to and with the first after which the text is complete and cannot
  // go on, or which is a stop id; 0 if there is none.
  int32_t FindEnd(std::span<const TokenId> tokens);

  // Advances over kept tokens and returns how many it took. Fewer than all: the constraint forbids
  // one, which only a fault of a backend can cause; the sequence must end before it.
  size_t Commit(std::span<const TokenId> tokens);

 private:
  // Sets the mask of a place, at which the matcher stands.
  void SetMask(const grammar::MaskRow& row, PlaceEdits* place);
  // Moves the matcher to the place after node `to`, all of whose ancestors are allowed. False if
  // the matcher does not take one of them.
  bool MoveTo(const Draft& draft, int32_t to);

  std::unique_ptr<grammar::GrammarMatcher> matcher_;
  int32_t vocab_size_ = 0;
  std::vector<grammar::MaskRow> rows_;  // of the places of the last draft
  // Scratch of Fill: the nodes that the matcher has accepted, and for each place the place whose
  // mask it has.
  std::vector<int32_t> path_;
  std::vector<int32_t> place_of_;
};

}  // namespace specd
