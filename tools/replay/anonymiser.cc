#include "tools/replay/anonymiser.h"

#include <fmt/format.h>

namespace specd::replay {

// New ids of one task, by their old ones.
class Anonymiser::TaskIds {
 public:
  explicit TaskIds(int32_t vocab_size) : vocab_size_(vocab_size) {}

  void Change(TokenId* id) {
    if (*id == kNoToken) return;
    const bool is_inside = *id >= 0 && *id < vocab_size_;
    if (!is_inside) {
      *id = vocab_size_;
      return;
    }
    *id = ids_.try_emplace(*id, static_cast<TokenId>(ids_.size())).first->second;
  }
  void Change(std::vector<TokenId>* ids) {
    for (TokenId& id : *ids) Change(&id);
  }

 private:
  const int32_t vocab_size_;
  std::unordered_map<TokenId, TokenId> ids_;
};

void Anonymiser::Take(TraceInfo* info) {
  vocab_size_ = static_cast<int32_t>(info->vocab_size);
  info->anonymised = true;
  info->tokenizer.clear();
  info->row_file.clear();
  info->options.clear();
  info->processor.clear();
  info->eos_token_ids.clear();
}

void Anonymiser::Take(TraceOpening* opening) {
  if (!opening->request_id.empty()) {
    const auto place =
        requests_.try_emplace(opening->request_id, fmt::format("r{}", requests_.size() + 1));
    opening->request_id = place.first->second;
  }
  opening->stop_token_ids.clear();
  // A hash of few ids or words gives them away.
  opening->list_hashes.clear();
  opening->constraint_hash = 0;
  // Parameters that are ids, such as thinking_start_id.
  std::erase_if(opening->numbers, [](const auto& number) { return number.first.ends_with("_id"); });
}

void Anonymiser::Take(TraceRound* round) {
  round->level = TraceLevel::kRounds;
  round->rows.clear();
  for (TraceTask& task : round->tasks) Take(&task);
  for (TraceAnswer& answer : round->answers) answer.stop_token = kNoToken;
}

void Anonymiser::Take(TraceTask* task) const {
  TaskIds ids(vocab_size_);
  ids.Change(&task->tokens);
  ids.Change(&task->target_argmax);
  ids.Change(&task->confirmed);
  ids.Change(&task->chosen);
  for (PlaceDecision& decision : task->decisions) ids.Change(&decision.token);
  for (TokenScore& score : task->token_scores) ids.Change(&score.id);
  for (TracePlace& place : task->places) {
    ids.Change(&place.forced);
    place.overrides.clear();
    place.grammar_mask = -1;
  }
  task->edits.clear();
  task->allowed.clear();
  // Hashes of the ids that were.
  task->edits_hash = task->overrides_hash = task->parameters_hash = 0;
}

}  // namespace specd::replay
