#include "speculative/param_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

namespace specd {
namespace {

// The place that a chain of members leads to: At<&SequenceParams::draft, &DraftParams::top_p>.
template <auto... Members>
constexpr auto At() {
  using Field = std::remove_cvref_t<decltype((std::declval<SequenceParams&>().*....*Members))>;
  return ParamPlace<Field>{
      [](const SequenceParams& params) -> const Field& { return (params.*....*Members); },
      [](SequenceParams& params) -> Field& { return (params.*....*Members); }};
}

using P = SequenceParams;
using D = DraftParams;
using T = ThinkingParams;

// Counters of tokens are 32 bits wide on the wire and in a sequence's state word.
constexpr double kTokensMax = 2147483647;
constexpr ParamRange kAny;
constexpr ParamRange kTemperature = {0, 2};
constexpr ParamRange kDraftTemperature = {kGreedyTemperature, 2};
constexpr ParamRange kTopP = {0, 1, true};
constexpr ParamRange kTopK = {-1};
constexpr ParamRange kUnit = {0, 1};
constexpr ParamRange kPenalty = {-2, 2};
constexpr ParamRange kRepetition = {0, 2, true};
constexpr ParamRange kBias = {-100, 100};
constexpr ParamRange kSamples = {1, kSamplesMax};
constexpr ParamRange kLogprobs = {-1, kLogprobsMax};
constexpr ParamRange kOffOrTokens = {-1, kTokensMax};
constexpr ParamRange kTokensOrNone = {0, kTokensMax};
constexpr ParamRange kTokens = {1, kTokensMax};

// Peers number nothing here; an index is the value in the struct and on the wire.
constexpr std::string_view kMethods[] = {"auto", "greedy", "exact_match", "token", "block"};
constexpr std::string_view kOrders[] = {"sequential", "joint"};
constexpr std::string_view kScoreModes[] = {"raw_logprobs", "processed_logprobs", "raw_logits",
                                            "processed_logits"};

// One row is easier to compare with the next where all look alike.
// clang-format off
constexpr ParamRow kTable[] = {
    {"verify", At<&P::verify>(), kAny, 0, kMethods,
     "rejection_sample_method", "",
     "the verification method; auto: greedy for a greedy sequence, else block in a round with "
     "sampled drafts and exact_match in every other; block and token take one-hot drafts too"},
    {"seed", At<&P::seed>(), kAny, 0, {},
     "seed", "sampling_seed",
     "key of the sequence's coins, any 64-bit number; without one a random seed is drawn and "
     "reported"},
    {"n", At<&P::n>(), kSamples, 0, {},
     "n", "n",
     "sequences to open from one prompt; child i uses seed + i, which wraps after 2^64 - 1"},
    {"temperature", At<&P::temperature>(), kTemperature, 0, {},
     "temperature", "temperature",
     "logits are divided by it; below 1e-5 the sequence is greedy"},
    {"top_p", At<&P::top_p>(), kTopP, 0, {},
     "top_p", "top_p",
     "the fewest most probable ids whose mass reaches it stay; 1: off"},
    {"top_k", At<&P::top_k>(), kTopK, 0, {},
     "top_k", "top_k",
     "exactly the k most probable ids stay; 0, -1, or vocab_size and more: off; 1: greedy"},
    {"min_p", At<&P::min_p>(), kUnit, 0, {},
     "min_p", "min_p",
     "ids at least this fraction as probable as the most probable one stay; 0: off"},
    {"filter_order", At<&P::filter_order>(), kAny, 0, kOrders,
     "", "",
     "sequential: min_p, then top_k, then top_p on what is left, renormalised; joint: each "
     "judges the distribution after temperature, and what passes all three stays"},
    {"frequency_penalty", At<&P::frequency_penalty>(), kPenalty, 0, {},
     "frequency_penalty", "frequency_penalty",
     "subtracted once for each time the id occurs in output and draft prefix"},
    {"presence_penalty", At<&P::presence_penalty>(), kPenalty, 0, {},
     "presence_penalty", "presence_penalty",
     "subtracted once if the id occurs in output or draft prefix"},
    {"repetition_penalty", At<&P::repetition_penalty>(), kRepetition, 0, {},
     "repetition_penalty", "repetition_penalty",
     "positive logits of ids in prompt, output or draft prefix are divided by it, negative ones "
     "multiplied; 1: off"},
    {"logit_bias", At<&P::logit_bias>(), kBias, kLogitBiasMax, {},
     "logit_bias", "logit_bias",
     "added to the logits of these ids, before penalties"},
    {"allowed_token_ids", At<&P::allowed_token_ids>(), kAny, 0, {},
     "allowed_token_ids", "",
     "every other id is masked; empty: all are allowed"},
    {"disallowed_token_ids", At<&P::disallowed_token_ids>(), kAny, 0, {},
     "", "",
     "these ids are masked"},
    {"bad_words", At<&P::bad_words>(), kAny, kBadWordsMax, {},
     "bad_words", "",
     "id sequences that must not be completed; the client tokenises each word with and without a"
     " leading space"},
    {"no_repeat_ngram_size", At<&P::no_repeat_ngram_size>(), kTokensOrNone, 0, {},
     "", "custom_params.ngram_size",
     "an id that would repeat an n-gram of this length is masked; 0: off"},
    {"no_repeat_ngram_window", At<&P::no_repeat_ngram_window>(), kTokensOrNone, 0, {},
     "", "custom_params.window_size",
     "only the last so many tokens of prompt and output are searched; 0: all"},
    {"no_repeat_ngram_whitelist", At<&P::no_repeat_ngram_whitelist>(), kAny, kNgramWhitelistMax, {},
     "", "custom_params.whitelist_token_ids",
     "ids that no_repeat_ngram_size never masks"},
    {"thinking_budget", At<&P::thinking, &T::budget>(), kOffOrTokens, 0, {},
     "thinking_token_budget", "custom_params.thinking_budget",
     "tokens of a thought after which its end is forced; -1: off"},
    {"thinking_start_id", At<&P::thinking, &T::start_id>(), kAny, 0, {},
     "", "",
     "the marker that opens a thought; -1: none. An open may name a thinking_preset (glm-4.5, "
     "qwen3, deepseek-r1) in place of this and the next two"},
    {"thinking_end_ids", At<&P::thinking, &T::end_ids>(), kAny, kThinkingEndIdsMax, {},
     "", "",
     "the tokens that close a thought"},
    {"thinking_newline_id", At<&P::thinking, &T::newline_id>(), kAny, 0, {},
     "", "",
     "emitted before a forced end unless it just was; -1: not"},
    {"processors", At<&P::processors>(), kAny, kProcessorsMax, {},
     "logits_processors", "custom_logit_processor",
     "processors compiled into the daemon, by name, with numbers as parameters"},
    {"max_tokens", At<&P::max_tokens>(), kTokens, 0, {},
     "max_tokens", "max_new_tokens",
     "kept tokens after which the sequence finishes"},
    {"min_tokens", At<&P::min_tokens>(), kTokensOrNone, 0, {},
     "min_tokens", "min_new_tokens",
     "EOS and stop ids are masked while the output is shorter, and nothing stops it at this many"
     " tokens or fewer; at most max_tokens"},
    {"ignore_eos", At<&P::ignore_eos>(), kAny, 0, {},
     "ignore_eos", "ignore_eos",
     "the EOS ids of the model profile do not finish the sequence; stop_token_ids still do"},
    {"stop_token_ids", At<&P::stop_token_ids>(), kAny, kStopIdsMax, {},
     "stop_token_ids", "stop_token_ids",
     "an id of these finishes the sequence; it is kept, its text is withheld"},
    {"logprobs", At<&P::logprobs>(), kLogprobs, 0, {},
     "logprobs", "top_logprobs_num",
     "the best ids that are reported beside each kept token; 0: the token alone; -1: nothing"},
    {"logprobs_mode", At<&P::logprobs_mode>(), kAny, 0, kScoreModes,
     "logprobs_mode", "",
     "raw: of the row as it arrived, scaled and capped; processed: after all filters (greedy: "
     "after the penalties and masks)"},
    {"logprob_token_ids", At<&P::logprob_token_ids>(), kAny, kLogprobTokenIdsMax, {},
     "logprob_token_ids", "token_ids_logprob",
     "further ids that are reported beside each kept token"},
    {"draft_temperature", At<&P::draft, &D::temperature>(), kDraftTemperature, 0, {},
     "", "",
     "the temperature the drafter drew sampled tokens with; never taken from temperature"},
    {"draft_top_p", At<&P::draft, &D::top_p>(), kTopP, 0, {},
     "", "",
     "the top_p the drafter used"},
    {"draft_top_k", At<&P::draft, &D::top_k>(), kTopK, 0, {},
     "", "",
     "the top_k the drafter used"},
    {"draft_min_p", At<&P::draft, &D::min_p>(), kUnit, 0, {},
     "", "",
     "the min_p the drafter used"},
    {"draft_filter_order", At<&P::draft, &D::filter_order>(), kAny, 0, kOrders,
     "", "",
     "the order in which the drafter applied its filters"},
    {"draft_edits", At<&P::draft, &D::edits>(), kAny, 0, {},
     "", "",
     "masks, biases, penalties and bad words of the sequence apply to draft rows as well"},
    {"stop_strings", At<&P::stop_strings>(), kAny, kStopStringsMax, {},
     "stop", "stop",
     "a text of these finishes the sequence; none may be empty"},
    {"include_stop", At<&P::include_stop>(), kAny, 0, {},
     "include_stop_str_in_output", "no_stop_trim",
     "the text of the stop string, stop id or EOS that ended the sequence is shown"},
    {"skip_special_tokens", At<&P::skip_special_tokens>(), kAny, 0, {},
     "skip_special_tokens", "skip_special_tokens",
     "special tokens give no text"},
};
// clang-format on

constexpr std::string_view kIdRange = "0 .. vocab_size - 1";

template <class Enum>
std::string ChoiceText(const ParamRow& row, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < row.choices.size() ? std::string(row.choices[index]) : fmt::format("{}", index);
}

struct TextOfValue {
  const ParamRow& row;
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(uint64_t value) const { return fmt::format("{}", value); }
  std::string operator()(TokenId value) const { return fmt::format("{}", value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(VerifyMethod value) const { return ChoiceText(row, value); }
  std::string operator()(FilterOrder value) const { return ChoiceText(row, value); }
  std::string operator()(ScoreMode value) const { return ChoiceText(row, value); }
  template <class Element>
  std::string operator()(const std::vector<Element>& list) const {
    if (list.empty()) return "empty";
    return fmt::format("{} {}", list.size(), list.size() == 1 ? "entry" : "entries");
  }
};

struct TextOfRange {
  const ParamRow& row;
  std::string operator()(double) const { return RangeText(row.range); }
  std::string operator()(int64_t) const { return RangeText(row.range); }
  std::string operator()(uint64_t) const { return "0 .. 2^64 - 1"; }
  std::string operator()(TokenId) const { return fmt::format("-1, or {}", kIdRange); }
  std::string operator()(bool) const { return "true, false"; }
  std::string operator()(VerifyMethod) const { return Names(); }
  std::string operator()(FilterOrder) const { return Names(); }
  std::string operator()(ScoreMode) const { return Names(); }
  std::string operator()(const std::vector<TokenId>&) const {
    return row.max_count == 0 ? fmt::format("at most vocab_size ids in {}", kIdRange)
                              : fmt::format("at most {} ids in {}", row.max_count, kIdRange);
  }
  std::string operator()(const std::vector<TokenBias>&) const {
    return fmt::format("at most {} ids in {}, each once, biases in {}", row.max_count, kIdRange,
                       RangeText(row.range));
  }
  std::string operator()(const std::vector<std::vector<TokenId>>&) const {
    return fmt::format("at most {} words, none empty, together at most {} ids in {}", row.max_count,
                       kBadWordIdsMax, kIdRange);
  }
  std::string operator()(const std::vector<std::string>&) const {
    return fmt::format("at most {} texts, none empty, together at most {} bytes", row.max_count,
                       kStopBytesMax);
  }
  std::string operator()(const std::vector<ProcessorParams>&) const {
    return fmt::format("at most {} processors, numbers finite", row.max_count);
  }

  std::string Names() const { return fmt::format("{}", fmt::join(row.choices, ", ")); }
};

template <class Visitor>
std::string VisitValue(const Visitor& visitor, const SequenceParams& params) {
  return std::visit([&](const auto& place) { return visitor(place.read(params)); },
                    visitor.row.place);
}

}  // namespace

bool ParamRange::Contains(double value) const {
  return (excludes_minimum ? value > minimum : value >= minimum) && value <= maximum;
}

std::span<const ParamRow> ParamTable() { return kTable; }

const ParamRow* FindParam(std::string_view field) {
  const auto* row = std::find_if(std::begin(kTable), std::end(kTable),
                                 [field](const ParamRow& each) { return each.field == field; });
  return row == std::end(kTable) ? nullptr : row;
}

std::string RangeText(const ParamRange& range) {
  if (range.maximum == std::numeric_limits<double>::infinity()) {
    return fmt::format("{} or more", range.minimum);
  }
  if (range.excludes_minimum) return fmt::format("above {} .. {}", range.minimum, range.maximum);
  return fmt::format("{} .. {}", range.minimum, range.maximum);
}

std::string RangeText(const ParamRow& row) { return VisitValue(TextOfRange{row}, {}); }

std::string ValueText(const ParamRow& row, const SequenceParams& params) {
  return VisitValue(TextOfValue{row}, params);
}

}  // namespace specd
