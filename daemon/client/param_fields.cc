#include "daemon/client/param_fields.h"

#include <string_view>
#include <type_traits>

#include "speculative/params/param_numbers.h"

namespace specd {
namespace {

// A row of the table. If the row is a number, `value` is its default.
struct RowDefault {
  explicit RowDefault(std::string_view name)
      : row(*FindParam(name)),
        is_number(IsNumber(row)),
        value(is_number ? NumberOf(row, SequenceParams()) : 0) {}

  const ParamRow& row;
  const bool is_number;
  const double value;
};

// Calls each(row, default, field) for every number of the table that has a field in specd_params. A
// row and its default are looked up once in the life of the process.
template <class Params, class Each>
void ForEachField(Params& params, Each each) {
#define SPECD_FIELD(name)                                                             \
  if constexpr (requires { params.name; }) {                                          \
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(params.name)>>) { \
      static const RowDefault known(#name);                                           \
      if (known.is_number) each(known.row, known.value, params.name);                 \
    }                                                                                 \
  }
#define SPECD_PARAM(type, name, ...) SPECD_FIELD(name)
#define SPECD_THINKING_PARAM(type, name, ...) SPECD_FIELD(thinking_##name)
#define SPECD_DRAFT_PARAM(type, name, ...) SPECD_FIELD(draft_##name)
#include "speculative/params/param_list.inc"
#undef SPECD_FIELD
}

}  // namespace

void InitFields(specd_params* params) {
  ForEachField(*params, [](const ParamRow&, double value, auto& field) {
    field = static_cast<std::remove_cvref_t<decltype(field)>>(value);
  });
}

NamedNumbers ChangedFields(const specd_params& params) {
  NamedNumbers numbers;
  ForEachField(params, [&numbers](const ParamRow& row, double value, const auto& field) {
    if (static_cast<double>(field) != value) numbers.emplace_back(row.field, field);
  });
  return numbers;
}

}  // namespace specd
