#include "tools/replay/grammar_check.h"

#include <fmt/format.h>

namespace specd::replay {

void GrammarCheck::Begin(const TraceRound& round) {
  round_ = round.number;
  mask_hashes_.clear();
  for (const TraceRow& row : round.rows) {
    if (row.tensor == TraceTensor::kGrammarMask) mask_hashes_.try_emplace(row.index, row.hash);
  }
}

// 0: the mask or its hash was not recorded.
uint64_t GrammarCheck::MaskHash(int32_t row) const {
  const auto found = row < 0 ? mask_hashes_.end() : mask_hashes_.find(static_cast<uint32_t>(row));
  return found == mask_hashes_.end() ? 0 : found->second;
}

std::vector<std::string> GrammarCheck::Check(const TraceTask& task, SequenceHandle sequence) {
  std::vector<std::string> differences;
  for (size_t i = 0; i < task.places.size(); ++i) {
    const uint64_t state = task.places[i].grammar_state;
    const uint64_t hash = state == 0 ? 0 : MaskHash(task.places[i].grammar_mask);
    if (hash == 0) continue;
    const Seen* const seen = Find(sequence, state);
    if (seen == nullptr) {
      Keep(sequence, state, hash);
    } else if (seen->mask_hash != hash) {
      differences.push_back(
          fmt::format("place {}: the grammar state {:#x} has a mask with the hash {:#x}, and in "
                      "round {} it had "
                      "another one with {:#x}",
                      i, state, hash, seen->round, seen->mask_hash));
    }
  }
  return differences;
}

const GrammarCheck::Seen* GrammarCheck::Find(SequenceHandle sequence, uint64_t state) const {
  const auto states = sequences_.find(sequence);
  if (states == sequences_.end()) return nullptr;
  const auto seen = states->second.find(state);
  return seen == states->second.end() ? nullptr : &seen->second;
}

void GrammarCheck::Keep(SequenceHandle sequence, uint64_t state, uint64_t mask_hash) {
  if (num_states_ == states_max_) {
    ++num_not_compared_;
    return;
  }
  sequences_[sequence][state] = {.mask_hash = mask_hash, .round = round_};
  ++num_states_;
}

void GrammarCheck::Forget(SequenceHandle sequence) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return;
  num_states_ -= found->second.size();
  sequences_.erase(found);
}

}  // namespace specd::replay
