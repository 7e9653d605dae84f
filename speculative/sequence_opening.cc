#include "speculative/sequence_opening.h"

#include <fmt/format.h>

#include <random>
#include <string_view>
#include <utility>

#include "speculative/row_kinds.h"

namespace specd {
namespace {

// No token is sampled for a greedy sequence, but its processed logprobs are those of temperature 1.
float TargetScale(const SequenceParams& params) {
  return ScaleFor(IsGreedy(params) ? 1.0 : params.temperature);
}

// Logits have no meaningful sum.
bool HasLogprobs(const ScoreRequest& scores) {
  return scores.enabled &&
         (scores.mode == ScoreMode::kRawLogprob || scores.mode == ScoreMode::kProcessedLogprob);
}

absl::Status CheckIds(std::span<const TokenId> ids, std::string_view field, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return absl::InvalidArgumentError(
        fmt::format("{}[{}] = {} is outside 0 .. {} (vocab_size - 1); leave out ids that stand for "
                    "no token, as those of images",
                    field, i, ids[i], vocab_size - 1));
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t DrawSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

SequenceOpening::SequenceOpening(const BackendLimits& limits, std::vector<TokenId> eos_token_ids)
    : limits_(limits), eos_token_ids_(std::move(eos_token_ids)) {}

absl::Status SequenceOpening::CheckHistory(const SequenceParams& params,
                                           const SequenceHistory& history) const {
  const int32_t vocab_size = limits_.vocab_size;
  if (absl::Status s = CheckIds(history.prompt, "prompt", vocab_size); !s.ok()) return s;
  if (absl::Status s = CheckIds(history.outputs, "outputs", vocab_size); !s.ok()) return s;
  if (history.outputs.size() < static_cast<size_t>(params.max_tokens)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("outputs: {} tokens were given and max_tokens = {} counts them, so nothing is "
                  "left to generate; raise max_tokens, or do not open the sequence",
                  history.outputs.size(), params.max_tokens));
}

absl::StatusOr<Sequence> SequenceOpening::Build(const SequenceParams& params,
                                                const SequenceHistory& history) const {
  const int32_t vocab_size = limits_.vocab_size;
  if (absl::Status s = ValidateParams(params, vocab_size); !s.ok()) return s;
  if (absl::Status s = CheckHistory(params, history); !s.ok()) return s;
  absl::StatusOr<RowRules> rules = RowRules::Create(params, eos_token_ids_, history, limits_);
  if (!rules.ok()) return rules.status();

  Sequence sequence;
  sequence.method = SequenceMethod(params);
  sequence.seed = params.has_seed ? params.seed : DrawSeed();
  sequence.target_scale = TargetScale(params);
  sequence.draft_scale = ScaleFor(params.draft.temperature);
  sequence.target_filters = MakeFilters(params, vocab_size);
  sequence.draft_filters = MakeFilters(params.draft, vocab_size);
  sequence.draft_edits = params.draft.edits;
  sequence.scores = MakeScoreRequest(params);
  sequence.logprob_token_ids = params.logprob_token_ids;
  sequence.min_tokens = params.min_tokens;
  sequence.max_tokens = params.max_tokens;
  sequence.ignore_eos = params.ignore_eos;
  sequence.stop_token_ids = params.stop_token_ids;
  sequence.target_change = TargetChange(params, vocab_size);
  sequence.draft_change = DraftChange(params.draft, vocab_size);
  sequence.rules = *std::move(rules);
  sequence.kept_tokens = static_cast<uint32_t>(history.outputs.size());
  if (HasLogprobs(sequence.scores)) {
    sequence.logprob_sum = LogprobSum(sequence.kept_tokens, params.max_tokens);
  }
  return sequence;
}

}  // namespace specd
