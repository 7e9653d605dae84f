#include "speculative/sequence/sequence_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/core/check.h"

namespace specd {
namespace {

// A row for every width, in memory that is always there.
constexpr std::array<uint32_t, size_t{kVocabSizeMax} / 32> kNoIds = {};
constexpr int32_t kNoPlace = -1;

using grammar::MatcherFault;

// Takes a matcher back to its place at the end of a scope, also if memory runs out in it.
class PlaceKeeper {
 public:
  explicit PlaceKeeper(grammar::GrammarMatcher* matcher)
      : matcher_(*matcher), num_accepted_(matcher->num_accepted()) {}
  ~PlaceKeeper() { matcher_.Rollback(matcher_.num_accepted() - num_accepted_); }
  PlaceKeeper(const PlaceKeeper&) = delete;
  PlaceKeeper& operator=(const PlaceKeeper&) = delete;

 private:
  grammar::GrammarMatcher& matcher_;
  const size_t num_accepted_;
};

}  // namespace

absl::StatusOr<SequenceGrammar> SequenceGrammar::Create(
    std::unique_ptr<grammar::GrammarMatcher> matcher, std::span<const TokenId> outputs,
    const BackendLimits& limits) {
  SequenceGrammar result;
  result.vocab_size_ = limits.vocab_size;
  result.matcher_ = std::move(matcher);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (result.matcher_->Accept(outputs[i])) continue;
    if (const MatcherFault fault = result.matcher_->fault(); fault != MatcherFault::kNone) {
      return absl::ResourceExhaustedError(
          fmt::format("output_ids[{}] = {}: {}", i, outputs[i], RefusalText(RefusalOf(fault))));
    }
    return absl::InvalidArgumentError(fmt::format(
        "output_ids[{}] = {} is forbidden by the constraint; give the tokens that were generated "
        "under it, or open the sequence without it",
        i, outputs[i]));
  }
  if (result.matcher_->IsFinished() || result.matcher_->IsTerminated()) {
    return absl::InvalidArgumentError(
        outputs.empty()
            ? "grammar: the empty text is the only one that the constraint allows, so nothing is "
              "left to generate; do not open the sequence"
            : "output_ids: they complete the constraint, so nothing is left to generate; do not "
              "open the sequence");
  }
  const auto num_places = static_cast<size_t>(limits.max_draft) + 1;
  result.rows_.resize(num_places);
  result.states_.resize(num_places);
  result.faults_.resize(num_places);
  result.path_.reserve(num_places);
  result.place_of_.resize(num_places);
  return result;
}

SequenceGrammar::SequenceGrammar(const SequenceGrammar& other)
    : matcher_(other.matcher_ == nullptr ? nullptr : other.matcher_->Fork()),
      vocab_size_(other.vocab_size_),
      rows_(other.rows_.size()),
      states_(other.states_.size()),
      faults_(other.faults_.size()),
      place_of_(other.place_of_.size()) {
  path_.reserve(other.path_.capacity());
}

SequenceGrammar& SequenceGrammar::operator=(SequenceGrammar other) noexcept {
  std::swap(matcher_, other.matcher_);
  std::swap(vocab_size_, other.vocab_size_);
  std::swap(rows_, other.rows_);
  std::swap(states_, other.states_);
  std::swap(faults_, other.faults_);
  std::swap(path_, other.path_);
  std::swap(place_of_, other.place_of_);
  return *this;
}

bool SequenceGrammar::MoveTo(const Draft& draft, int32_t to) {
  const NodeSet wanted = AncestorsOf(draft, PlaceAfter(to));
  size_t num_stale = 0;
  while (!path_.empty() && !Holds(wanted, path_.back())) {
    path_.pop_back();
    ++num_stale;
  }
  matcher_->Rollback(num_stale);
  const int32_t last = path_.empty() ? kRoot : path_.back();
  const int64_t first_new = path_.size();
  for (int32_t node = to; node != last; node = ParentOf(draft, node)) path_.push_back(node);
  std::reverse(path_.begin() + first_new, path_.end());
  for (size_t i = static_cast<size_t>(first_new); i < path_.size(); ++i) {
    if (matcher_->Accept(draft.tokens[path_[i]])) continue;
    path_.resize(i);
    return false;
  }
  return true;
}

void SequenceGrammar::SetMask(const grammar::MaskRow& row, PlaceEdits* place) {
  place->grammar_mask = row.IsUnconstrained() ? nullptr : row.words().data();
  // Where a limit was met nothing is allowed, and another look would only cost the work again.
  if (matcher_->fault() == grammar::MatcherFault::kNone &&
      (matcher_->IsFinished() || matcher_->IsTerminated())) {
    place->below_min_tokens = false;
  }
  // A thinking budget looks for the end of a thought in ids, the constraint in bytes. If they
  // disagree, the constraint wins: once it has begun, nothing is forced.
  if (place->forced != kNoToken && (!matcher_->IsWaiting() || !row.Allows(place->forced))) {
    place->forced = kNoToken;
  }
}

void SequenceGrammar::Forbid(int32_t place, PlaceEdits* edits) {
  faults_[place] = matcher_->fault();
  place_of_[place] = place;
  rows_[place] = grammar::MaskRow();
  states_[place] = 0;
  edits->grammar_mask = kNoIds.data();
  edits->forced = kNoToken;
}

std::optional<grammar::MaskRow> SequenceGrammar::FillAfter(std::span<const TokenId> prefix,
                                                           PlaceEdits* place,
                                                           grammar::WorkSlice* slice) {
  const PlaceKeeper keeper(matcher_.get());
  for (const TokenId token : prefix) {
    if (matcher_->Accept(token)) continue;
    if (matcher_->fault() == MatcherFault::kNone) break;
    place->grammar_mask = kNoIds.data();
    place->forced = kNoToken;
    return grammar::MaskRow();
  }
  std::optional<grammar::MaskRow> row = matcher_->TryMask(slice);
  if (row.has_value()) SetMask(*row, place);
  return row;
}

int32_t SequenceGrammar::SourceOf(const Draft& draft, int32_t place) {
  const int32_t node = NodeBefore(place);
  if (node == kRoot) return place;
  const int32_t before = PlaceOf(draft, node);
  const int32_t reached = place_of_[before];
  const TokenId token = draft.tokens[node];
  const bool is_id = token >= 0 && token < vocab_size_;
  if (reached != before || faults_[reached] != MatcherFault::kNone || !is_id ||
      !rows_[reached].Allows(token)) {
    return reached;
  }
  if (MoveTo(draft, node)) return place;
  // Without a fault, the mask allows what the matcher does not take: an error in the matcher.
  return matcher_->fault() == MatcherFault::kNone ? reached : kNoPlace;
}

bool SequenceGrammar::Fill(const Draft& draft, PlaceEdits* places, int32_t* next,
                           grammar::WorkSlice* slice) {
  path_.clear();
  const PlaceKeeper keeper(matcher_.get());
  for (; *next <= draft.num_nodes; ++*next) {
    const int32_t place = *next;
    const int32_t source = SourceOf(draft, place);
    if (source == kNoPlace) {
      Forbid(place, &places[place]);
      continue;
    }
    const size_t to = place;
    const size_t from = source;
    if (source == place) {
      std::optional<grammar::MaskRow> row = matcher_->TryMask(slice);
      if (!row.has_value()) return false;
      rows_[to] = *std::move(row);
      faults_[to] = matcher_->fault();
      // A mask that met a limit is not the mask of the state.
      states_[to] = faults_[to] == MatcherFault::kNone ? matcher_->StateNumber() : 0;
      SetMask(rows_[to], &places[place]);
    } else {
      states_[to] = states_[from];
      faults_[to] = faults_[from];
      places[place].grammar_mask = places[source].grammar_mask;
      places[place].below_min_tokens &= places[source].below_min_tokens;
    }
    place_of_[to] = source;
  }
  return true;
}

int32_t SequenceGrammar::FindEnd(std::span<const TokenId> tokens) {
  const PlaceKeeper keeper(matcher_.get());
  for (size_t i = 0; i < tokens.size() && matcher_->Accept(tokens[i]); ++i) {
    if (matcher_->IsFinished() || matcher_->IsTerminated()) return static_cast<int32_t>(i + 1);
  }
  return 0;
}

void SequenceGrammar::DropRows() { std::fill(rows_.begin(), rows_.end(), grammar::MaskRow()); }

size_t SequenceGrammar::Commit(std::span<const TokenId> tokens) {
  DropRows();
  size_t num_taken = 0;
  while (num_taken < tokens.size() && matcher_->Accept(tokens[num_taken])) ++num_taken;
  return num_taken;
}

Refusal RefusalOf(MatcherFault fault) {
  switch (fault) {
    case MatcherFault::kNone:
      break;
    case MatcherFault::kTooManyWays:
      return Refusal::kGrammarWays;
    case MatcherFault::kFull:
    case MatcherFault::kNoMemory:
      return Refusal::kGrammarMemory;
    case MatcherFault::kTooMuchWork:
      return Refusal::kGrammarWork;
  }
  return Refusal::kNone;
}

}  // namespace specd
