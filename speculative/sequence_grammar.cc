#include "speculative/sequence_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"

namespace specd {

absl::StatusOr<SequenceGrammar> SequenceGrammar::Create(
    std::unique_ptr<grammar::GrammarMatcher> matcher, std::span<const TokenId> outputs,
    const BackendLimits& limits) {
  SequenceGrammar result;
  result.vocab_size_ = limits.vocab_size;
  result.matcher_ = std::move(matcher);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (result.matcher_->Accept(outputs[i])) continue;
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
  result.path_.reserve(num_places);
  result.place_of_.resize(num_places);
  return result;
}

SequenceGrammar::SequenceGrammar(const SequenceGrammar& other)
    : matcher_(other.matcher_ == nullptr ? nullptr : other.matcher_->Fork()),
      vocab_size_(other.vocab_size_),
      rows_(other.rows_.size()),
      states_(other.states_.size()),
      place_of_(other.place_of_.size()) {
  path_.reserve(other.path_.capacity());
}

SequenceGrammar& SequenceGrammar::operator=(SequenceGrammar other) noexcept {
  std::swap(matcher_, other.matcher_);
  std::swap(vocab_size_, other.vocab_size_);
  std::swap(rows_, other.rows_);
  std::swap(states_, other.states_);
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
  const auto first_new = static_cast<int64_t>(path_.size());
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
  if (matcher_->IsFinished() || matcher_->IsTerminated()) place->below_min_tokens = false;
  // A thinking budget and the constraint may disagree on where a thought ends: the mask wins.
  if (place->forced != kNoToken && !row.Allows(place->forced)) place->forced = kNoToken;
}

grammar::MaskRow SequenceGrammar::FillAfter(std::span<const TokenId> prefix, PlaceEdits* place) {
  size_t num_accepted = 0;
  while (num_accepted < prefix.size() && matcher_->Accept(prefix[num_accepted])) ++num_accepted;
  grammar::MaskRow row = matcher_->Mask();
  SetMask(row, place);
  matcher_->Rollback(num_accepted);
  return row;
}

void SequenceGrammar::Fill(const Draft& draft, PlaceEdits* places) {
  path_.clear();
  for (int32_t place = 0; place <= draft.num_nodes; ++place) {
    const int32_t node = NodeBefore(place);
    int32_t source = place;
    if (node != kRoot) {
      const int32_t before = PlaceOf(draft, node);
      const auto reached = static_cast<size_t>(place_of_[static_cast<size_t>(before)]);
      const TokenId token = draft.tokens[node];
      const bool is_id = token >= 0 && token < vocab_size_;
      if (static_cast<int32_t>(reached) != before || !is_id || !rows_[reached].Allows(token)) {
        source = static_cast<int32_t>(reached);
      } else if (!MoveTo(draft, node)) {
        // The mask allows what the matcher does not take: a fault of a backend.
        source = static_cast<int32_t>(reached);
      }
    }
    place_of_[static_cast<size_t>(place)] = source;
    if (source == place) {
      rows_[static_cast<size_t>(place)] = matcher_->Mask();
      states_[static_cast<size_t>(place)] = matcher_->StateNumber();
      SetMask(rows_[static_cast<size_t>(place)], &places[place]);
    } else {
      states_[static_cast<size_t>(place)] = states_[static_cast<size_t>(source)];
      places[place].grammar_mask = places[source].grammar_mask;
      places[place].below_min_tokens &= places[source].below_min_tokens;
    }
  }
  matcher_->Rollback(path_.size());
  path_.clear();
}

int32_t SequenceGrammar::FindEnd(std::span<const TokenId> tokens) {
  size_t num_accepted = 0;
  int32_t end = 0;
  while (end == 0 && num_accepted < tokens.size() && matcher_->Accept(tokens[num_accepted])) {
    ++num_accepted;
    if (matcher_->IsFinished() || matcher_->IsTerminated()) {
      end = static_cast<int32_t>(num_accepted);
    }
  }
  matcher_->Rollback(num_accepted);
  return end;
}

size_t SequenceGrammar::Commit(std::span<const TokenId> tokens) {
  size_t num_taken = 0;
  while (num_taken < tokens.size() && matcher_->Accept(tokens[num_taken])) ++num_taken;
  return num_taken;
}

}  // namespace specd
