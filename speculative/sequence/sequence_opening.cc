#include "speculative/sequence/sequence_opening.h"

#include <fmt/format.h>

#include <random>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "speculative/params/param_check.h"
#include "speculative/sequence/row_kinds.h"

namespace specd {
namespace {

// No token is sampled for a greedy sequence, but its processed logprobs are those of temperature 1.
float TargetScale(const SequenceParams& params) {
  return ScaleFor(IsGreedy(params) ? 1.0 : params.temperature);
}

// Logits have no meaningful sum.
bool HasLogprobs(const ScoreRequest& scores) {
  return scores.enabled && GivesLogprobs(scores.mode);
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
  // Without its name libstdc++ asks the processor, which takes ten microseconds for 32 bits on
  // some.
  std::random_device device("getentropy");
  return (static_cast<uint64_t>(device()) << 32) | device();
}

SequenceOpening::SequenceOpening(const BackendLimits& limits, std::vector<TokenId> eos_token_ids,
                                 std::shared_ptr<grammar::GrammarCompiler> grammars)
    : limits_(limits),
      eos_token_ids_(std::move(eos_token_ids)),
      grammars_(std::move(grammars)),
      constraints_(std::make_unique<grammar::GrammarHolder>()) {}

absl::StatusOr<SequenceGrammar> SequenceOpening::BuildGrammar(
    const SequenceParams& params, const SequenceHistory& history,
    std::shared_ptr<const grammar::CompiledGrammar>* constraint) const {
  if (params.grammar_kind == grammar::GrammarKind::kNone) {
    if (params.grammar_text.empty()) return SequenceGrammar();
    return absl::InvalidArgumentError(
        "grammar: a text was given with grammar_kind = none; name its kind");
  }
  if (grammars_ == nullptr) {
    return absl::UnimplementedError(
        "grammar_kind: a constraint needs the tokens' text, and no tokenizer is there; start specd "
        "with --tokenizer, or give the tokenizer to an embedded engine; or mask rows in the engine "
        "(SPECD_GRAMMAR_MASK)");
  }
  const absl::Status room = constraints_->CheckRoom();
  grammar::CompileResult compiled =
      room.ok() ? grammars_->Compile({.kind = params.grammar_kind,
                                      .text = params.grammar_text,
                                      .whitespace = params.grammar_whitespace,
                                      .key_order = params.grammar_key_order,
                                      .lenient = params.grammar_lenient})
                : room;
  if (compiled.ok()) compiled = constraints_->Hold(*std::move(compiled));
  if (!compiled.ok()) {
    const absl::Status& status = compiled.status();
    return absl::Status(status.code(), absl::StrCat("grammar: ", status.message()));
  }
  grammar::MatcherOptions options = {.stop_ids = params.stop_token_ids};
  if (!params.ignore_eos) {
    options.stop_ids.insert(options.stop_ids.end(), eos_token_ids_.begin(), eos_token_ids_.end());
  }
  std::unique_ptr<grammar::GrammarMatcher> matcher = (*compiled)->NewMatcher(options);
  const std::shared_ptr<const grammar::ReasoningMarkers> markers = grammars_->reasoning();
  if (markers != nullptr && !params.grammar_in_reasoning) {
    if (params.thinking.budget >= 0 && !markers->AreEnd(params.thinking.end_ids)) {
      return absl::InvalidArgumentError(
          fmt::format("thinking_end_ids: their text is not the model's reasoning_end = \"{}\", so "
                      "a constraint would never begin after a thought that the thinking_budget "
                      "ends; name the ids of that text, or set thinking_budget = -1",
                      markers->texts().end));
    }
    matcher = std::make_unique<grammar::ReasoningGate>(markers, std::move(matcher), history.prompt);
  } else if (params.thinking.budget >= 0) {
    return absl::InvalidArgumentError(
        "thinking_budget: its forced tokens would break a constraint that holds from the start; "
        "give specd the model's reasoning_end, or leave one of them out");
  }
  *constraint = *std::move(compiled);
  return SequenceGrammar::Create(std::move(matcher), history.outputs, limits_);
}

absl::Status SequenceOpening::CheckHistory(const SequenceParams& params,
                                           const SequenceHistory& history) const {
  const int32_t vocab_size = limits_.vocab_size;
  if (absl::Status s = CheckIds(history.prompt, "prompt", vocab_size); !s.ok()) return s;
  if (absl::Status s = CheckIds(history.outputs, "outputs", vocab_size); !s.ok()) return s;
  if (history.finish_reason != FinishReason::kNone) return absl::OkStatus();  // no token follows
  if (params.rng == Rng::kSglang && history.prompt.empty()) {
    return absl::InvalidArgumentError(
        "prompt_ids: rng = sglang counts positions from the first token of the prompt, and no "
        "prompt was given; give its ids, or set rng = philox");
  }
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
  Sequence sequence;
  if (history.finish_reason == FinishReason::kNone) {
    absl::StatusOr<RowRules> rules = RowRules::Create(params, eos_token_ids_, history, limits_);
    if (!rules.ok()) return rules.status();
    absl::StatusOr<SequenceGrammar> grammar = BuildGrammar(params, history, &sequence.constraint);
    if (!grammar.ok()) return grammar.status();
    sequence.rules = *std::move(rules);
    sequence.grammar = *std::move(grammar);
  }
  sequence.handle = history.handle;
  sequence.finish_reason = history.finish_reason;
  sequence.stop_token = history.stop_token;
  sequence.method = SequenceMethod(params);
  sequence.seed = params.has_seed ? params.seed : DrawSeed();
  sequence.target_scale = TargetScale(params);
  sequence.draft_scale = ScaleFor(params.draft.temperature);
  sequence.target_filters = MakeFilters(params, vocab_size);
  sequence.draft_filters = MakeFilters(params.draft, vocab_size);
  sequence.draft_edits = params.draft.edits;
  sequence.lossy = MakeLossyRule(params);
  sequence.rates.assign(params.synthetic_rates.begin(), params.synthetic_rates.end());
  sequence.rng = params.rng;
  sequence.rng_offset = static_cast<uint32_t>(history.prompt.size()) - 1;
  sequence.scores = MakeScoreRequest(params);
  sequence.logprob_token_ids = params.logprob_token_ids;
  sequence.min_tokens = params.min_tokens;
  sequence.max_tokens = params.max_tokens;
  sequence.ignore_eos = params.ignore_eos;
  sequence.stop_token_ids = params.stop_token_ids;
  sequence.target_change = TargetChange(params, vocab_size);
  sequence.draft_change = DraftChange(params.draft, vocab_size);
  sequence.kept_tokens = static_cast<uint32_t>(history.outputs.size());
  if (HasLogprobs(sequence.scores)) {
    sequence.logprob_sum =
        LogprobSum(sequence.kept_tokens, params.max_tokens, history.cumulative_logprob);
  }
  return sequence;
}

}  // namespace specd
