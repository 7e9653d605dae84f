#include "speculative/params/param_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "speculative/params/param_table.h"

namespace specd {
namespace {

using P = SequenceParams;

bool LeavesNothing(const SequenceParams& params, int32_t vocab_size) {
  std::vector<TokenId> disallowed = params.disallowed_token_ids;
  std::sort(disallowed.begin(), disallowed.end());
  if (params.allowed_token_ids.empty()) {
    const auto end = std::unique(disallowed.begin(), disallowed.end());
    return end - disallowed.begin() == vocab_size;
  }
  return std::all_of(
      params.allowed_token_ids.begin(), params.allowed_token_ids.end(),
      [&](TokenId id) { return std::binary_search(disallowed.begin(), disallowed.end(), id); });
}

constexpr ParamRule kRules[] = {
    {{"verify", "temperature", "top_k"},
     "verify = greedy, temperature >= 1e-5 and top_k other than 1",
     "greedy does not sample",
     "set temperature = 0 or top_k = 1, or take verify = auto",
     [](const P& p, int32_t) { return p.verify == VerifyMethod::kGreedy && !IsGreedy(p); }},
    {{"verify", "temperature", "top_k"},
     "verify = token, block, tree, traversal, target_only, typical or threshold in a greedy "
     "sequence (temperature < 1e-5 or top_k = 1)",
     "a greedy sequence has no coins to throw",
     "take verify = auto",
     [](const P& p, int32_t) {
       const bool takes_greedy =
           p.verify == VerifyMethod::kRelaxed || p.verify == VerifyMethod::kSynthetic;
       return p.verify > VerifyMethod::kExactMatch && !takes_greedy && IsGreedy(p);
     }},
    {{"verify", "typical_epsilon", "typical_delta"},
     "typical_epsilon or typical_delta set, verify other than typical",
     "they would be ignored",
     "set verify = typical, or leave them out",
     [](const P& p, int32_t) {
       const P none;
       return p.verify != VerifyMethod::kTypical &&
              (p.typical_epsilon != none.typical_epsilon || p.typical_delta != none.typical_delta);
     }},
    {{"verify", "relaxed_n", "relaxed_delta", "relaxed_thinking"},
     "relaxed_n, relaxed_delta or relaxed_thinking set, verify other than relaxed",
     "they would be ignored",
     "set verify = relaxed, or leave them out",
     [](const P& p, int32_t) {
       const P none;
       return p.verify != VerifyMethod::kRelaxed &&
              (p.relaxed_n != none.relaxed_n || p.relaxed_delta != none.relaxed_delta ||
               p.relaxed_thinking);
     }},
    {{"verify", "threshold_single", "threshold_acc"},
     "threshold_single or threshold_acc set, verify other than threshold",
     "they would be ignored",
     "set verify = threshold, or leave them out",
     [](const P& p, int32_t) {
       return p.verify != VerifyMethod::kThreshold &&
              (p.threshold_single != 1 || p.threshold_acc != 1);
     }},
    {{"verify", "synthetic_rates"},
     "synthetic_rates without verify = synthetic, or the other way round",
     "the method accepts by these rates and by nothing else",
     "give both, or neither",
     [](const P& p, int32_t) {
       return (p.verify == VerifyMethod::kSynthetic) == p.synthetic_rates.empty();
     }},
    {{"rng", "verify"},
     "rng = sglang and verify other than auto, exact_match or greedy",
     "SGLang's generator has noise for each id and no coins for such a method",
     "take verify = auto, or rng = philox",
     [](const P& p, int32_t) {
       return p.rng == Rng::kSglang && p.verify > VerifyMethod::kExactMatch;
     }},
    {{"rng", "top_p", "top_k", "min_p"},
     "rng = sglang and top_p, top_k or min_p",
     "SGLang then ties its noise to the rank of an id in a sort, and not to the id",
     "leave the filters out, or take rng = philox",
     [](const P& p, int32_t vocab_size) {
       const bool has_top_k = p.top_k > 1 && p.top_k < vocab_size;
       return p.rng == Rng::kSglang && !IsGreedy(p) && (p.top_p < 1 || has_top_k || p.min_p > 0);
     }},
    {{"rng", "draft_top_p", "draft_top_k", "draft_min_p"},
     "rng = sglang and draft_top_p, draft_top_k or draft_min_p",
     "SGLang then ties its noise to the rank of an id in a sort, and not to the id",
     "leave the filters out, or take rng = philox",
     [](const P& p, int32_t vocab_size) {
       const bool has_top_k = p.draft.top_k > 0 && p.draft.top_k < vocab_size;
       return p.rng == Rng::kSglang && (p.draft.top_p < 1 || has_top_k || p.draft.min_p > 0);
     }},
    {{"n", "temperature", "top_k"},
     "n > 1 in a greedy sequence",
     "all of them would be the same text",
     "set n = 1, or a temperature above 0",
     [](const P& p, int32_t) { return p.n > 1 && IsGreedy(p); }},
    {{"allowed_token_ids", "disallowed_token_ids"},
     "no id of the vocabulary is allowed and not disallowed",
     "nothing is left to sample",
     "leave at least one id",
     LeavesNothing},
    {{"no_repeat_ngram_size", "no_repeat_ngram_window"},
     "no_repeat_ngram_window set and smaller than no_repeat_ngram_size",
     "no n-gram fits into the window, so none would be found",
     "set the window to the size or more, or to 0",
     [](const P& p, int32_t) {
       return p.no_repeat_ngram_window > 0 && p.no_repeat_ngram_window < p.no_repeat_ngram_size;
     }},
    {{"no_repeat_ngram_size", "no_repeat_ngram_window", "no_repeat_ngram_whitelist"},
     "no_repeat_ngram_window or no_repeat_ngram_whitelist set, no_repeat_ngram_size = 0",
     "without a size both would be ignored",
     "set no_repeat_ngram_size",
     [](const P& p, int32_t) {
       return p.no_repeat_ngram_size == 0 &&
              (p.no_repeat_ngram_window > 0 || !p.no_repeat_ngram_whitelist.empty());
     }},
    {{"thinking_budget", "thinking_start_id", "thinking_end_ids"},
     "thinking_budget >= 0 or relaxed_thinking, without thinking_start_id or thinking_end_ids",
     "a thought could not be told from the rest, or not be closed",
     "name the model's markers or a thinking_preset, or set thinking_budget = -1 and "
     "relaxed_thinking = 0",
     [](const P& p, int32_t) {
       return (p.thinking.budget >= 0 || p.relaxed_thinking) &&
              (p.thinking.start_id == kNoToken || p.thinking.end_ids.empty());
     }},
    {{"thinking_budget", "thinking_start_id", "thinking_end_ids", "thinking_newline_id"},
     "thinking ids or a thinking_preset set, thinking_budget = -1 and no relaxed_thinking",
     "without a budget they would be ignored",
     "set thinking_budget = 0 or more, or leave them out",
     [](const P& p, int32_t) {
       return p.thinking.budget < 0 && !p.relaxed_thinking &&
              (p.thinking.start_id != kNoToken || !p.thinking.end_ids.empty() ||
               p.thinking.newline_id != kNoToken);
     }},
    {{"min_tokens", "max_tokens"},
     "min_tokens > max_tokens",
     "the output cannot be that long",
     "lower min_tokens or raise max_tokens",
     [](const P& p, int32_t) { return p.min_tokens > p.max_tokens; }},
    {{"logprob_token_ids", "logprobs"},
     "logprob_token_ids set, logprobs = -1",
     "no logprobs are reported, so the ids would be ignored",
     "set logprobs = 0 or more",
     [](const P& p, int32_t) { return !p.logprob_token_ids.empty() && p.logprobs < 0; }},
};

constexpr std::string_view kOneConstraint = "a sequence has one constraint, with one text";
constexpr std::string_view kNameKind =
    "set grammar_kind, and the text in specd_params.grammar (Python: "
    "structured_outputs=specd.StructuredOutputs(...))";
constexpr std::string_view kOneEngine =
    "specd's own engine enforces every constraint, so there is no xgrammar or other engine to name";
constexpr std::string_view kTakeLenient =
    "leave it out; for a schema with a part that specd refuses, set grammar_lenient (Python: "
    "lenient "
    "of specd.StructuredOutputs)";
constexpr std::string_view kNoBeams = "beam search does not sample";
constexpr std::string_view kTakeSamples =
    "open n sequences with logprobs = 0 and rank them by cumulative_logprob";
constexpr std::string_view kNoCode = "code and free-form arguments never cross the wire";
constexpr std::string_view kTakeCompiled =
    "use the parameters of the table, or name a compiled-in processor in processors";
constexpr std::string_view kPlumbing = "it concerns only the engine that takes the request";
constexpr std::string_view kLeaveToEngine = "keep it there and do not pass it on";
constexpr std::string_view kText = "specd gives the text as it is decoded";
constexpr std::string_view kSubscribe = "do it where the text is received";

constexpr RefusedName kRefused[] = {
    {"best_of", "", "the best of several needs their whole texts", kTakeSamples},
    {"use_beam_search", "", kNoBeams, kTakeSamples},
    {"beam_width", "", kNoBeams, kTakeSamples},
    {"length_penalty", "", kNoBeams, kTakeSamples},
    {"early_stopping", "", kNoBeams, kTakeSamples},
    {"verify", "standard", "vLLM's rule for sampled drafts is called token here",
     "take verify = token, or auto"},
    {"verify", "fly", "it changes the distribution of the output, and is not built",
     "take verify = auto, which is lossless"},
    {"guided_decoding", "", kOneConstraint, kNameKind},
    {"response_format", "", kOneConstraint, kNameKind},
    {"grammar", "", kOneConstraint, kNameKind},
    {"json", "", kOneConstraint, kNameKind},
    {"json_schema", "", kOneConstraint, kNameKind},
    {"json_object", "", kOneConstraint, kNameKind},
    {"regex", "", kOneConstraint, kNameKind},
    {"ebnf", "", kOneConstraint, kNameKind},
    {"choice", "", kOneConstraint, kNameKind},
    {"structural_tag", "", kOneConstraint, kNameKind},
    {"whitespace_pattern", "", "whitespace has two modes",
     "set grammar_whitespace (Python: whitespace of specd.StructuredOutputs)"},
    {"grammar_backend", "", kOneEngine, kTakeLenient},
    {"backend", "", kOneEngine, kTakeLenient},
    {"disable_fallback", "", kOneEngine, kTakeLenient},
    {"reasoning_parser", "", "it belongs to the model and not to a request",
     "name reasoning_parser, or reasoning_end, in the model profile"},
    {"any_order", "", "the order of properties is a choice",
     "set grammar_key_order = any (Python: key_order of specd.StructuredOutputs)"},
    {"disable_additional_properties", "", "a schema is taken as it is written",
     "write additionalProperties = false into it"},
    {"prompt_logprobs", "", "a sequence scores only what it emits",
     "score the prompt's rows (specd_score)"},
    {"flat_logprobs", "", "logprobs have one layout", "leave it out"},
    {"custom_params", "", kNoCode, kTakeCompiled},
    {"extra_args", "", kNoCode, kTakeCompiled},
    {"logits_processors", "", kNoCode, kTakeCompiled},
    {"custom_logit_processor", "", kNoCode, kTakeCompiled},
    {"repetition_detection", "", "it ends a text by its content",
     "use no_repeat_ngram_size, or abort the sequence"},
    {"return_sampling_mask", "", "the set of ids left by the filters is not reported",
     "set logprobs_mode = processed_logprobs"},
    {"truncate_prompt_tokens", "", kPlumbing, kLeaveToEngine},
    {"routed_experts_prompt_start", "", kPlumbing, kLeaveToEngine},
    {"skip_clone", "", kPlumbing, kLeaveToEngine},
    {"skip_reading_prefix_cache", "", kPlumbing, kLeaveToEngine},
    {"return_hidden_states", "", kPlumbing, kLeaveToEngine},
    {"detokenize", "", "every session of a daemon with a tokenizer has text",
     "leave the text unread, or start the daemon with --detokenizer=off; an embedded engine has "
     "text with stops = inline"},
    {"output_kind", "", kText, "set output of specd.subscribe"},
    {"stream_interval", "", kText, "set stream_interval of specd.subscribe"},
    {"echo", "", kText, kSubscribe},
    {"spaces_between_special_tokens", "",
     "only transformers' tokenizers in Python put spaces there, and no tokenizer file that specd "
     "reads asks for them",
     "leave it out: special tokens stand beside each other, as with false"},
};

}  // namespace

std::span<const ParamRule> ParamRules() { return kRules; }

absl::Status CheckRules(const SequenceParams& params, int32_t vocab_size) {
  for (const ParamRule& rule : kRules) {
    if (!rule.broken(params, vocab_size)) continue;
    std::string values;
    for (std::string_view field : rule.fields) {
      if (field.empty()) break;
      const ParamRow* row = FindParam(field);
      SPECD_CHECK(row != nullptr);
      if (!values.empty()) values += ", ";
      values += fmt::format("{} = {}", field, ValueText(*row, params));
    }
    return absl::InvalidArgumentError(
        fmt::format("{}: {}; {} (refused: {})", values, rule.why, rule.remedy, rule.when));
  }
  return absl::OkStatus();
}

std::span<const RefusedName> RefusedNames() { return kRefused; }

std::optional<std::string> RefusedParam(std::string_view name, std::string_view value) {
  for (const RefusedName& refused : kRefused) {
    if (refused.name != name || (!refused.value.empty() && refused.value != value)) continue;
    return fmt::format("{}{}{} is refused: {}; {}", name, refused.value.empty() ? "" : " = ",
                       refused.value, refused.why, refused.remedy);
  }
  for (const ParamRow& row : ParamTable()) {
    if (name.empty() || name == row.field) continue;
    if (name != row.vllm_name && name != row.sglang_name) continue;
    // A parameter has vLLM's name in Python.
    const bool other_name = !row.vllm_name.empty() && row.vllm_name != row.field;
    const std::string in_python =
        other_name && name != row.vllm_name ? fmt::format(", {} in Python", row.vllm_name) : "";
    return fmt::format("{} is called {} here{} ({})", name, row.field, in_python, row.meaning);
  }
  return std::nullopt;
}

}  // namespace specd
