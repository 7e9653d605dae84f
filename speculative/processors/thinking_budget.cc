#include "speculative/processors/thinking_budget.h"

#include <iterator>

namespace specd {
namespace {

struct ModelTokens {
  std::string_view name;
  TokenId start;
  TokenId end;
  TokenId newline;
};

// The ids come from the tokenizers of the models (CONTRACT §3, step 6).
constexpr ModelTokens kModelTokens[] = {
    {"glm-4.5", 151350, 151351, 198},
    {"qwen3", 151667, 151668, 198},
    {"deepseek-r1", 128798, 128799, 201},
};

}  // namespace

std::optional<ThinkingParams> FindThinkingPreset(std::string_view name) {
  for (const ModelTokens& preset : kModelTokens) {
    if (preset.name != name) continue;
    ThinkingParams params;
    params.start_id = preset.start;
    params.end_ids = {preset.end};
    params.newline_id = preset.newline;
    return params;
  }
  return std::nullopt;
}

ThinkingBudget::ThinkingBudget(const ThinkingParams& params)
    : params_(params), fallback_(params.end_ids.size() + 1) {
  const std::vector<TokenId>& end = params_.end_ids;
  SPECD_CHECK(!end.empty());
  for (size_t size = 2; size <= end.size(); ++size) {
    size_t border = fallback_[size - 1];
    while (border > 0 && end[border] != end[size - 1]) border = fallback_[border];
    fallback_[size] = end[border] == end[size - 1] ? border + 1 : 0;
  }
}

void ThinkingBudget::Step(TokenId id, Thought* thought) const {
  if (id == params_.start_id) {
    *thought = {.open = true};
    return;
  }
  if (!thought->open) return;
  ++thought->num_tokens;
  const std::vector<TokenId>& end = params_.end_ids;
  size_t matched = thought->num_ended;
  while (matched > 0 && end[matched] != id) matched = fallback_[matched];
  if (end[matched] == id) ++matched;
  thought->num_ended = matched;
  if (matched == end.size()) *thought = {};
}

void ThinkingBudget::Advance(const TokenHistory& history, size_t num_new) {
  for (TokenId id : history.tokens.last(num_new)) Step(id, &kept_);
}

void ThinkingBudget::Apply(const TokenHistory& history, PlaceEditor* place) const {
  Thought thought = kept_;
  for (TokenId id : history.tokens.subspan(history.num_kept)) Step(id, &thought);
  if (!thought.open) return;
  place->NoteThought();
  if (params_.budget < 0 || thought.num_tokens < params_.budget) return;
  const std::span<const TokenId> outputs = history.outputs();
  const bool after_newline = !outputs.empty() && outputs.back() == params_.newline_id;
  const bool wants_newline =
      params_.newline_id != kNoToken && thought.num_ended == 0 && !after_newline;
  place->Force(wants_newline ? params_.newline_id : params_.end_ids[thought.num_ended]);
}

}  // namespace specd
