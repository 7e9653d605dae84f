#include "speculative/sequence/row_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "speculative/processors/bad_words.h"
#include "speculative/processors/no_repeat_ngram.h"
#include "speculative/processors/thinking_budget.h"

namespace specd {
namespace {

// Address space for the overrides of one sequence; only the used part is ever touched.
constexpr size_t kPoolBytesMax = size_t{1} << 30;

bool IsInside(TokenId id, int32_t vocab_size) { return id >= 0 && id < vocab_size; }

absl::Status CheckHistoryLength(int64_t num_tokens, const SequenceParams& params) {
  if (num_tokens <= kHistoryTokensMax) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "max_tokens = {}: with bad_words, no_repeat_ngram_size, a thinking budget or processors the "
      "prompt and max_tokens together may be {} at most, not {}; lower max_tokens",
      params.max_tokens, kHistoryTokensMax, num_tokens));
}

bool WatchesThoughts(const SequenceParams& params) {
  return params.thinking.budget >= 0 || params.relaxed_thinking;
}

absl::Status CheckThinking(const ThinkingParams& params) {
  const auto at = std::find(params.end_ids.begin(), params.end_ids.end(), params.start_id);
  if (at == params.end_ids.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "thinking_end_ids: {} is thinking_start_id too, so closing a thought would open the next; "
      "name markers that differ",
      params.start_id));
}

}  // namespace

absl::StatusOr<RowRules> RowRules::Create(const SequenceParams& params,
                                          std::span<const TokenId> eos_token_ids,
                                          const SequenceHistory& history,
                                          const BackendLimits& limits) {
  RowRules rules;
  rules.vocab_size_ = limits.vocab_size;
  rules.min_tokens_ = params.min_tokens;
  rules.edits_ = TokenEdits(params, eos_token_ids, history, limits.vocab_size);
  if (absl::Status status = rules.AddProcessors(params, history, limits); !status.ok()) {
    return status;
  }
  if (absl::Status status = rules.ReservePool(limits); !status.ok()) return status;
  return rules;
}

absl::Status RowRules::AddProcessors(const SequenceParams& params, const SequenceHistory& history,
                                     const BackendLimits& limits) {
  const int64_t max_history = static_cast<int64_t>(history.prompt.size()) + params.max_tokens;
  const auto add = [&](std::unique_ptr<Processor> processor) {
    if (processor != nullptr) processors_.push_back(std::move(processor));
  };
  add(BadWords::Make(params.bad_words));
  if (params.no_repeat_ngram_size > 0) {
    if (absl::Status status = CheckHistoryLength(max_history, params); !status.ok()) return status;
    NgramOptions options;
    options.ngram_size = static_cast<size_t>(params.no_repeat_ngram_size);
    options.window = static_cast<size_t>(params.no_repeat_ngram_window);
    options.whitelist = params.no_repeat_ngram_whitelist;
    options.max_history = static_cast<size_t>(max_history);
    options.max_draft = static_cast<size_t>(limits.max_draft);
    options.vocab_size = limits.vocab_size;
    add(std::make_unique<NoRepeatNgram>(options));
  }
  for (const ProcessorParams& custom : params.processors) {
    absl::StatusOr<std::unique_ptr<Processor>> processor = MakeProcessor(custom);
    if (!processor.ok()) return processor.status();
    add(*std::move(processor));
  }
  // Last, because a forced id overrides every earlier step.
  if (WatchesThoughts(params)) {
    if (absl::Status status = CheckThinking(params.thinking); !status.ok()) return status;
    add(std::make_unique<ThinkingBudget>(params.thinking));
  }

  if (processors_.empty()) {
    history_ = FixedList<TokenId>(static_cast<size_t>(limits.max_draft));
    return absl::OkStatus();
  }
  if (absl::Status status = CheckHistoryLength(max_history, params); !status.ok()) return status;
  history_ = FixedList<TokenId>(static_cast<size_t>(max_history + limits.max_draft));
  history_.append(history.prompt);
  history_.append(history.outputs);
  num_prompt_ = history.prompt.size();
  AdvanceProcessors(history_.size());
  return absl::OkStatus();
}

absl::Status RowRules::ReservePool(const BackendLimits& limits) {
  if (edits_.counts()) room_ += static_cast<size_t>(limits.max_draft);
  for (const auto& processor : processors_) room_ += processor->max_edits();
  const size_t entries = room_ * (static_cast<size_t>(limits.max_draft) + 1);
  if (entries > kPoolBytesMax / sizeof(TokenEdit)) {
    return absl::ResourceExhaustedError(fmt::format(
        "no_repeat_ngram_window: every place of a draft may ban up to {} ids, too many for {} "
        "places; set a smaller no_repeat_ngram_window, or lower max_tokens or max_draft",
        room_, limits.max_draft + 1));
  }
  pool_ = FixedList<TokenEdit>(entries);
  return absl::OkStatus();
}

RowRules::RowRules(const RowRules& other)
    : edits_(other.edits_),
      min_tokens_(other.min_tokens_),
      vocab_size_(other.vocab_size_),
      history_(other.history_),
      num_prompt_(other.num_prompt_),
      pool_(other.pool_.capacity()),
      room_(other.room_) {
  processors_.reserve(other.processors_.size());
  for (const auto& processor : other.processors_) processors_.push_back(processor->Clone());
}

RowRules& RowRules::operator=(RowRules other) noexcept {
  edits_ = std::move(other.edits_);
  processors_ = std::move(other.processors_);
  min_tokens_ = other.min_tokens_;
  vocab_size_ = other.vocab_size_;
  history_ = std::move(other.history_);
  num_prompt_ = other.num_prompt_;
  pool_ = std::move(other.pool_);
  room_ = other.room_;
  return *this;
}

size_t RowRules::size_bytes() const {
  size_t bytes = edits_.size_bytes() + history_.capacity_bytes() + pool_.capacity_bytes();
  for (const auto& processor : processors_) bytes += processor->size_bytes();
  return bytes;
}

void RowRules::Build(const Draft& draft, int32_t first_place, int64_t num_kept,
                     PlaceEdits* places) {
  const size_t num_kept_tokens = history_.size();
  int32_t before = 0;
  for (int32_t i = first_place; i <= draft.num_nodes; ++i) {
    SetPrefix(draft, i, before, num_kept_tokens);
    PlaceEdits& place = places[i - first_place];
    place = BuildPlace(num_kept_tokens);
    place.below_min_tokens = num_kept + DepthOf(draft, i) < min_tokens_;
    before = i;
  }
  history_.truncate(num_kept_tokens);
}

void RowRules::SetPrefix(const Draft& draft, int32_t place, int32_t before,
                         size_t num_kept_tokens) {
  if (place == 0) return history_.truncate(num_kept_tokens);
  const auto append = [&](int32_t node) {
    if (IsInside(draft.tokens[node], vocab_size_)) history_.push_back(draft.tokens[node]);
  };
  const int32_t last = NodeBefore(place);
  if (PlaceOf(draft, last) == before) return append(last);
  int32_t path[kNodesMax];
  int32_t length = 0;
  for (int32_t node = last; node != kRoot; node = ParentOf(draft, node)) path[length++] = node;
  history_.truncate(num_kept_tokens);
  while (length > 0) append(path[--length]);
}

PlaceEdits RowRules::BuildPlace(size_t num_kept_tokens) {
  const TokenHistory history{{history_.data(), history_.size()}, num_prompt_, num_kept_tokens};
  PlaceEditor editor(&edits_, vocab_size_, room_, &pool_);
  if (edits_.counts()) {
    for (TokenId id : history.tokens.subspan(num_kept_tokens)) editor.Count(id);
  }
  for (const auto& processor : processors_) {
    // Each processor thus finds the room that it asked for.
    editor.Merge();
    processor->Apply(history, &editor);
  }
  return editor.Finish();
}

void RowRules::AdvanceProcessors(size_t num_new) {
  const TokenHistory history{{history_.data(), history_.size()}, num_prompt_, history_.size()};
  for (const auto& processor : processors_) processor->Advance(history, num_new);
}

void RowRules::Commit(std::span<const TokenId> tokens) {
  if (edits_.counts()) {
    for (TokenId id : tokens) edits_.Count(id);
  }
  if (processors_.empty()) return;
  history_.append(tokens);
  AdvanceProcessors(tokens.size());
}

}  // namespace specd
