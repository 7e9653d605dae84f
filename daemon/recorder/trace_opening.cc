#include "daemon/recorder/trace_opening.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/trace/row_hash.h"
#include "speculative/params/param_numbers.h"
#include "speculative/params/param_table.h"

namespace specd {
namespace {

template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;

uint64_t HashOf(std::string_view bytes) { return RowHash(std::as_bytes(std::span(bytes))); }

// The bytes of a value of a list. Sizes come first, so that no two values have the same bytes.
void Append(const std::string& text, std::string* out);
template <class T>
void Append(const std::vector<T>& list, std::string* out);
template <class A, class B>
void Append(const std::pair<A, B>& pair, std::string* out);

template <class T>
requires std::is_arithmetic_v<T>
void Append(T number, std::string* out) {
  out->append(reinterpret_cast<const char*>(&number), sizeof(number));
}
void Append(const TokenBias& bias, std::string* out) {
  Append(bias.id, out);
  Append(bias.bias, out);
}
void Append(const ProcessorParams& processor, std::string* out) {
  Append(processor.name, out);
  Append(processor.values, out);
}
void Append(const std::string& text, std::string* out) {
  Append(text.size(), out);
  out->append(text);
}
template <class T>
void Append(const std::vector<T>& list, std::string* out) {
  Append(list.size(), out);
  for (const T& value : list) Append(value, out);
}
template <class A, class B>
void Append(const std::pair<A, B>& pair, std::string* out) {
  Append(pair.first, out);
  Append(pair.second, out);
}

// The hash of a list that is not empty; nothing: the row is no list, or it is empty.
std::optional<uint64_t> ListHash(const ParamRow& row, const SequenceParams& params) {
  return std::visit(
      [&params](const auto& place) -> std::optional<uint64_t> {
        const auto& value = place.read(params);
        if constexpr (kIsList<std::remove_cvref_t<decltype(value)>>) {
          if (value.empty()) return std::nullopt;
          std::string bytes;
          Append(value, &bytes);
          return HashOf(bytes);
        } else {
          return std::nullopt;
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
    } else if (const std::optional<uint64_t> hash = ListHash(row, params)) {
      opening->lists.emplace_back(row.field);
      opening->list_hashes.push_back(*hash);
    }
  }
  opening->request_id = request_id;
  opening->stop_token_ids = params.stop_token_ids;
  opening->num_prompt_ids = static_cast<uint32_t>(history.prompt.size());
  opening->kept_tokens = static_cast<uint32_t>(history.outputs.size());
  opening->constraint = ConstraintOf(params);
  if (!params.grammar_text.empty()) opening->constraint_hash = HashOf(params.grammar_text);
  return opening;
}

}  // namespace specd
