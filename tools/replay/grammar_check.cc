#include "tools/replay/grammar_check.h"

#include <fmt/format.h>

namespace specd::replay {
namespace {

// Some 4 MiB. Further states are not compared.
constexpr size_t kStatesMax = size_t{1} << 16;

}  // namespace

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
    States& states = sequences_[sequence];
    const auto seen = states.find(state);
    if (seen != states.end() && seen->second.mask_hash != hash) {
      differences.push_back(
          fmt::format("place {}: the grammar state {:#x} has a mask with the hash {:#x}, and in "
                      "round {} it had "
                      "another one with {:#x}",
                      i, state, hash, seen->second.round, seen->second.mask_hash));
    }
    if (seen != states.end() || num_states_ == kStatesMax) continue;
    states[state] = {.mask_hash = hash, .round = round_};
    ++num_states_;
  }
  return differences;
}

void GrammarCheck::Forget(SequenceHandle sequence) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return;
  num_states_ -= found->second.size();
  sequences_.erase(found);
}

}  // namespace specd::replay
