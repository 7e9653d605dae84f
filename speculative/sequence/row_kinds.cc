#include "speculative/sequence/row_kinds.h"

#include <fmt/format.h>

#include <initializer_list>

namespace specd {
namespace {

struct Change {
  bool made;
  std::string_view field;
};

template <typename Changes>
std::string_view First(const Changes& changes) {
  for (const Change& change : changes) {
    if (change.made) return change.field;
  }
  return {};
}

}  // namespace

std::string_view TargetChange(const SequenceParams& params, int32_t vocab_size) {
  return First(std::initializer_list<Change>{
      {!params.allowed_token_ids.empty(), "allowed_token_ids"},
      {!params.disallowed_token_ids.empty(), "disallowed_token_ids"},
      {!params.logit_bias.empty(), "logit_bias"},
      {params.min_tokens > 0, "min_tokens"},
      {params.repetition_penalty != 1, "repetition_penalty"},
      {params.frequency_penalty != 0, "frequency_penalty"},
      {params.presence_penalty != 0, "presence_penalty"},
      {!params.bad_words.empty(), "bad_words"},
      {params.no_repeat_ngram_size > 0, "no_repeat_ngram_size"},
      {params.thinking.budget >= 0, "thinking_budget"},
      {!params.processors.empty(), "processors"},
      {params.temperature != 1, "temperature"},
      {params.min_p > 0, "min_p"},
      {params.top_k > 0 && params.top_k < vocab_size, "top_k"},
      {params.top_p < 1, "top_p"},
  });
}

std::string_view DraftChange(const DraftParams& params, int32_t vocab_size) {
  return First(std::initializer_list<Change>{
      {params.temperature != 1, "draft_temperature"},
      {params.min_p > 0, "draft_min_p"},
      {params.top_k > 0 && params.top_k < vocab_size, "draft_top_k"},
      {params.top_p < 1, "draft_top_p"},
      {params.edits, "draft_edits"},
  });
}

absl::Status CheckRowKind(const ElementRules& rules, std::string_view role,
                          std::string_view change) {
  if (rules.kind != RowKind::kFinalProbabilities || change.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "{}: the bound {} rows are final probabilities, which nothing may change; leave {} at its "
      "default, or bind rows that are not final",
      change, role, change));
}

absl::Status CheckTensor(const TensorView& view, std::string_view role, int32_t vocab_size) {
  if (view.vocab_size != vocab_size) {
    return absl::InvalidArgumentError(fmt::format(
        "{} tensor: vocab_size = {}, but the session has {}; bind rows of that many ids", role,
        view.vocab_size, vocab_size));
  }
  if (view.rules.kind == RowKind::kLogits) return absl::OkStatus();
  if (view.dtype != DType::kFloat32) {
    return absl::InvalidArgumentError(fmt::format(
        "{} tensor: probabilities must be float32; convert them, or bind logits", role));
  }
  if (view.rules.scale != 1 || view.rules.cap != 0) {
    return absl::InvalidArgumentError(
        fmt::format("{} tensor: scale = {} and cap = {} belong to logits; with probabilities use "
                    "scale = 1 and cap = 0",
                    role, view.rules.scale, view.rules.cap));
  }
  return absl::OkStatus();
}

}  // namespace specd
