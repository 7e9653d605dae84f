#include "tools/replay/sequence_book.h"

#include <algorithm>

#include "tools/replay/draft_tree.h"

namespace specd::replay {

uint32_t NumDrawn(const TraceTask& task, int32_t vocab_size) {
  if (DraftTree::IsTree(task)) return DraftTree(task, vocab_size).NumInside();
  const auto end =
      std::find_if_not(task.tokens.begin(), task.tokens.end(),
                       [vocab_size](TokenId token) { return IsInVocabulary(token, vocab_size); });
  return static_cast<uint32_t>(end - task.tokens.begin());
}

bool HasOutcome(const TraceRound& round, const TraceTask& task) {
  return round.status == RoundStatus::kOk && !IsUndecided(task.outcome.status);
}

uint32_t NumReached(const TraceTask& task, uint32_t num_drawn) {
  const uint32_t accepted = std::max(task.outcome.num_accepted, 0);
  return std::min(num_drawn, accepted + (task.outcome.status == OutcomeStatus::kOk ? 1 : 0));
}

bool NamesNoSequence(const TraceAnswer& answer) {
  return answer.status == RoundStatus::kUnknownSequence ||
         answer.status == RoundStatus::kNotReady ||
         (answer.status == RoundStatus::kInvalid && answer.refusal == Refusal::kSequence);
}

const TraceAnswer* AnswerOf(const TraceRound& round, const TraceTask& task) {
  return task.answer < round.answers.size() ? &round.answers[task.answer] : nullptr;
}

void SequenceBook::Take(const TraceItem& item) {
  if (const auto* info = std::get_if<TraceInfo>(&item.record)) {
    vocab_size_ = static_cast<int32_t>(info->vocab_size);
  }
  if (const auto* opening = std::get_if<TraceOpening>(&item.record)) Take(*opening);
  if (const auto* end = std::get_if<TraceEnd>(&item.record)) Take(*end);
  if (const auto* round = std::get_if<TraceRound>(&item.record)) Take(*round);
}

void SequenceBook::Take(const TraceOpening& opening) {
  SequenceEntry& entry = entries_[IndexOf(opening.sequence)];
  if (entry.has_opening) return;  // a rotated file names the open sequences again
  entry.opening = opening;
  entry.has_opening = true;
  entry.total_kept = std::max(entry.total_kept, opening.kept_tokens);
}

void SequenceBook::Take(const TraceEnd& end) {
  SequenceEntry& entry = entries_[IndexOf(end.sequence)];
  entry.has_ended = true;
  // A close does not say how many tokens were kept.
  if (end.reason == FinishReason::kNone) return Close(end.sequence);
  entry.total_kept = end.kept_tokens;
  entry.reason = end.reason;
}

void SequenceBook::Take(const TraceRound& round) {
  for (size_t i = 0; i < round.answers.size(); ++i) {
    const TraceAnswer& answer = round.answers[i];
    if (NamesNoSequence(answer)) continue;
    SequenceEntry& entry = entries_[IndexOf(answer.sequence)];
    if (entry.num_rounds++ == 0) entry.first_round = round.number;
    entry.last_round = round.number;
    entry.last_status = answer.status;
    entry.num_accepted += answer.num_accepted;
    entry.num_kept += answer.num_kept;
    if (IsCommitted(SequenceResult{.status = answer.status})) entry.total_kept = answer.total_kept;
    if (answer.finish_reason != FinishReason::kNone) {
      entry.reason = answer.finish_reason;
      entry.has_ended = true;
    }
  }
  for (const TraceTask& task : round.tasks) {
    const TraceAnswer* const answer = AnswerOf(round, task);
    if (answer == nullptr || !HasOutcome(round, task)) continue;
    SequenceEntry& entry = entries_[IndexOf(answer->sequence)];
    const uint32_t drawn = NumDrawnOf(task);
    entry.num_drafted += drawn;
    const uint32_t accepted = std::max(task.outcome.num_accepted, 0);
    entry.num_judged_accepted += std::min(accepted, drawn);
    if (task.outcome.num_accepted < static_cast<int32_t>(drawn)) entry.had_rejection = true;
  }
}

uint32_t SequenceBook::NumDrawnOf(const TraceTask& task) const {
  return NumDrawn(task, vocab_size_);
}

void SequenceBook::Close(SequenceHandle sequence) {
  if (keep_ == Keep::kAll) return;
  const auto place = indices_.find(sequence);
  ++forgotten_.num_sequences;
  ++forgotten_.ended[entries_[place->second].reason];
  free_.push_back(place->second);
  indices_.erase(place);
}

SequenceBook::Counts SequenceBook::Count() const {
  Counts counts = forgotten_;
  counts.num_sequences += indices_.size();
  for (const auto& [sequence, index] : indices_) {
    if (entries_[index].has_ended) ++counts.ended[entries_[index].reason];
  }
  return counts;
}

size_t SequenceBook::IndexOf(SequenceHandle sequence) {
  const auto [place, is_new] = indices_.try_emplace(sequence, entries_.size());
  if (!is_new) return place->second;
  if (free_.empty()) {
    entries_.emplace_back();
  } else {
    place->second = free_.back();
    free_.pop_back();
    entries_[place->second] = {};
  }
  entries_[place->second].opening.sequence = sequence;
  return place->second;
}

const SequenceEntry* SequenceBook::Find(SequenceHandle sequence) const {
  const auto place = indices_.find(sequence);
  return place == indices_.end() ? nullptr : &entries_[place->second];
}

std::string_view SequenceBook::RequestOf(SequenceHandle sequence) const {
  const SequenceEntry* const entry = Find(sequence);
  return entry == nullptr ? std::string_view() : entry->opening.request_id;
}

}  // namespace specd::replay
