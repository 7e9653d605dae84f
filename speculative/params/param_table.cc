#include "speculative/params/param_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "kernels/core/method_names.h"

namespace specd {
namespace {

// The place that a chain of members leads to: At<&SequenceParams::draft, &DraftParams::top_p>.
template <auto... Members>
constexpr auto At() {
  using Field = std::remove_cvref_t<decltype((std::declval<SequenceParams&>().*....*Members))>;
  if constexpr (std::is_enum_v<Field>) {
    return ChoicePlace{
        [](const SequenceParams& params) { return static_cast<uint32_t>((params.*....*Members)); },
        [](SequenceParams& params, uint32_t value) {
          (params.*....*Members) = static_cast<Field>(value);
        }};
  } else {
    return ParamPlace<Field>{
        [](const SequenceParams& params) -> const Field& { return (params.*....*Members); },
        [](SequenceParams& params) -> Field& { return (params.*....*Members); }};
  }
}

// The allowed values of a parameter.
struct Allowed {
  ParamRange range = {};
  size_t max_count = 0;
  std::span<const std::string_view> choices = {};
};

constexpr Allowed Any() { return {}; }
constexpr Allowed Between(double minimum, double maximum) {
  return {.range = {.minimum = minimum, .maximum = maximum}};
}
constexpr Allowed Above(double minimum, double maximum) {
  return {.range = {.minimum = minimum, .maximum = maximum, .excludes_minimum = true}};
}
constexpr Allowed AtLeast(double minimum) { return {.range = {.minimum = minimum}}; }
constexpr Allowed AtMost(size_t count, Allowed element = Any()) {
  return {.range = element.range, .max_count = count};
}
constexpr Allowed OneOf(std::span<const std::string_view> names) { return {.choices = names}; }

// Token counters are 32 bits wide in a sequence's state word.
constexpr double kTokensMax = 2147483647;

// The index is the value in the struct and on the wire; peers have no numbers for these names.
constexpr std::string_view kRngs[] = {"philox", "sglang"};
constexpr std::string_view kGrammarKinds[] = {"none", "json",   "json_object",   "regex",
                                              "ebnf", "choice", "structural_tag"};
constexpr std::string_view kKeyOrders[] = {"schema", "any"};
constexpr std::string_view kWhitespaces[] = {"flexible", "compact"};
constexpr std::string_view kStopSearches[] = {"auto", "inline"};
constexpr std::string_view kOrders[] = {"sequential", "joint"};
constexpr std::string_view kDecodedIds[] = {"prompt_and_outputs", "outputs"};
constexpr std::string_view kScoreModes[] = {"raw_logprobs", "processed_logprobs", "raw_logits",
                                            "processed_logits", "unfiltered_logprobs"};

constexpr ParamRow Row(std::string_view field, AnyParamPlace place, Allowed allowed,
                       std::string_view vllm_name, std::string_view sglang_name,
                       std::string_view meaning) {
  return {.field = field,
          .place = place,
          .range = allowed.range,
          .max_count = allowed.max_count,
          .choices = allowed.choices,
          .vllm_name = vllm_name,
          .sglang_name = sglang_name,
          .meaning = meaning};
}

constexpr ParamRow kTable[] = {
#define SPECD_PARAM(type, name, value, ...) Row(#name, At<&SequenceParams::name>(), __VA_ARGS__),
#define SPECD_THINKING_PARAM(type, name, value, ...) \
  Row("thinking_" #name, At<&SequenceParams::thinking, &ThinkingParams::name>(), __VA_ARGS__),
#define SPECD_DRAFT_PARAM(type, name, value, ...) \
  Row("draft_" #name, At<&SequenceParams::draft, &DraftParams::name>(), __VA_ARGS__),
#include "speculative/params/param_list.inc"
};

constexpr std::string_view kIdRange = "0 .. vocab_size - 1";

struct TextOfValue {
  const ParamRow& row;
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(uint64_t value) const { return fmt::format("{}", value); }
  std::string operator()(TokenId value) const { return fmt::format("{}", value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(uint32_t value) const {
    return value < row.choices.size() ? std::string(row.choices[value]) : fmt::format("{}", value);
  }
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
  std::string operator()(uint32_t) const { return fmt::format("{}", fmt::join(row.choices, ", ")); }
  std::string operator()(const std::vector<TokenId>&) const {
    return row.max_count == 0 ? fmt::format("at most vocab_size ids in {}", kIdRange)
                              : fmt::format("at most {} ids in {}", row.max_count, kIdRange);
  }
  std::string operator()(const std::vector<double>&) const {
    return fmt::format("at most {} numbers in {}", row.max_count, RangeText(row.range));
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
