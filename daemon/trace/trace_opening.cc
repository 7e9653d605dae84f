#include "daemon/trace/trace_opening.h"

#include <type_traits>
#include <variant>
#include <vector>

#include "speculative/param_numbers.h"
#include "speculative/param_table.h"

namespace specd {
namespace {

template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;

bool IsFilledList(const ParamRow& row, const SequenceParams& params) {
  return std::visit(
      [&params](const auto& place) {
        const auto& value = place.read(params);
        if constexpr (kIsList<std::remove_cvref_t<decltype(value)>>) {
          return !value.empty();
        } else {
          return false;
        }
      },
      row.place);
}

std::string ConstraintOf(const SequenceParams& params) {
  if (params.grammar_kind == grammar::GrammarKind::kNone) return {};
  const ParamRow* const row = FindParam("grammar_kind");
  return row == nullptr ? std::string() : ValueText(*row, params);
}

}  // namespace

std::unique_ptr<TraceOpening> DescribeOpening(const std::string& request_id,
                                              const SequenceParams& params,
                                              const SequenceHistory& history) {
  auto opening = std::make_unique<TraceOpening>();
  const SequenceParams defaults;
  for (const ParamRow& row : ParamTable()) {
    if (IsNumber(row)) {
      const double value = NumberOf(row, params);
      if (value != NumberOf(row, defaults)) opening->numbers.emplace_back(row.field, value);
    } else if (IsFilledList(row, params)) {
      opening->lists.emplace_back(row.field);
    }
  }
  opening->request_id = request_id;
  opening->stop_token_ids = params.stop_token_ids;
  opening->num_prompt_ids = static_cast<uint32_t>(history.prompt.size());
  opening->kept_tokens = static_cast<uint32_t>(history.outputs.size());
  opening->constraint = ConstraintOf(params);
  return opening;
}

}  // namespace specd
