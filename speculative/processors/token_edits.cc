#include "speculative/processors/token_edits.h"

#include <algorithm>

namespace specd {
namespace {

void AddFlag(std::span<const TokenId> ids, uint32_t flag, std::vector<TokenEdit>* edits) {
  for (TokenId id : ids) edits->push_back({.id = id, .flags = flag});
}

void AddParams(const SequenceParams& params, std::span<const TokenId> eos_token_ids,
               std::vector<TokenEdit>* edits) {
  for (const TokenBias& bias : params.logit_bias) {
    edits->push_back({.id = bias.id, .bias = bias.bias});
  }
  AddFlag(params.disallowed_token_ids, kEditDisallowed, edits);
  if (params.min_tokens > 0) {
    // ignore_eos says that EOS does not finish the sequence. Below min_tokens EOS is still not
    // drawn.
    AddFlag(eos_token_ids, kEditEnd, edits);
    AddFlag(params.stop_token_ids, kEditEnd, edits);
  }
  for (const std::vector<TokenId>& word : params.bad_words) {
    // Longer words depend on the tokens before the place: bad_words.h.
    if (word.size() == 1) AddFlag(word, kEditBanned, edits);
  }
}

void AddHistory(const Penalties& penalties, const SequenceHistory& history,
                std::vector<TokenEdit>* edits) {
  // Only the repetition penalty counts the prompt.
  if (penalties.repetition != 1) AddFlag(history.prompt, kEditSeen, edits);
  for (TokenId id : history.outputs) {
    edits->push_back({.id = id, .flags = kEditSeen, .count = 1});
  }
}

std::vector<uint32_t> MaskOf(std::span<const TokenId> ids, int32_t vocab_size) {
  std::vector<uint32_t> words;
  if (ids.empty()) return words;
  words.resize((static_cast<size_t>(vocab_size) + 31) / 32);
  for (TokenId id : ids) {
    words[static_cast<size_t>(id) / 32] |= uint32_t{1} << (static_cast<uint32_t>(id) % 32);
  }
  return words;
}

bool IdLess(const TokenEdit& edit, TokenId id) { return edit.id < id; }

}  // namespace

size_t MergeEdits(std::span<TokenEdit> edits) {
  std::sort(edits.begin(), edits.end(), [](const TokenEdit& a, const TokenEdit& b) {
    return a.id != b.id ? a.id < b.id : a.bias < b.bias;
  });
  size_t size = 0;
  for (const TokenEdit& edit : edits) {
    if (size > 0 && edits[size - 1].id == edit.id) {
      TokenEdit& merged = edits[size - 1];
      merged.flags |= edit.flags;
      merged.bias += edit.bias;
      merged.count += edit.count;
    } else {
      edits[size++] = edit;
    }
  }
  return size;
}

TokenEdits::TokenEdits(const SequenceParams& params, std::span<const TokenId> eos_token_ids,
                       const SequenceHistory& history, int32_t vocab_size)
    : penalties_(MakePenalties(params)), allowed_(MaskOf(params.allowed_token_ids, vocab_size)) {
  counts_ = Counts(penalties_);
  std::vector<TokenEdit> edits;
  AddParams(params, eos_token_ids, &edits);
  if (counts_) AddHistory(penalties_, history, &edits);
  edits.resize(MergeEdits(edits));

  size_t capacity = edits.size();
  if (counts_) {
    // Each further token may be new, but there are no more ids than the vocabulary has.
    capacity += static_cast<size_t>(params.max_tokens) - history.outputs.size();
    capacity = std::min(capacity, static_cast<size_t>(vocab_size));
  }
  edits_ = FixedList<TokenEdit>(capacity);
  edits_.append(edits);
}

TokenEdit TokenEdits::Get(TokenId id) const {
  const TokenEdit* at = std::lower_bound(edits_.begin(), edits_.end(), id, IdLess);
  return at != edits_.end() && at->id == id ? *at : TokenEdit{.id = id};
}

void TokenEdits::Count(TokenId id) {
  TokenEdit* at = std::lower_bound(edits_.begin(), edits_.end(), id, IdLess);
  if (at == edits_.end() || at->id != id) {
    const size_t index = static_cast<size_t>(at - edits_.begin());
    edits_.insert(index, TokenEdit{.id = id});
    at = &edits_[index];
  }
  at->flags |= kEditSeen;
  ++at->count;
}

SequenceEdits TokenEdits::view() const {
  SequenceEdits view;
  view.edits = edits_.data();
  view.num_edits = static_cast<int32_t>(edits_.size());
  view.allowed = allowed_.empty() ? nullptr : allowed_.data();
  view.penalties = penalties_;
  return view;
}

}  // namespace specd
