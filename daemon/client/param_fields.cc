#include "daemon/client/param_fields.h"

#include <type_traits>

#include "speculative/param_numbers.h"

namespace specd {
namespace {

// Calls each(row, field) for every number of the table that has a field in specd_params. A row is
// looked up once in the life of the process.
template <class Params, class Each>
void ForEachField(Params& params, Each each) {
#define SPECD_FIELD(name)                                                             \
  if constexpr (requires { params.name; }) {                                          \
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(params.name)>>) { \
      static const ParamRow& row = *FindParam(#name);                                 \
      if (IsNumber(row)) each(row, params.name);                                      \
    }                                                                                 \
  }
#define SPECD_PARAM(type, name, ...) SPECD_FIELD(name)
#define SPECD_THINKING_PARAM(type, name, ...) SPECD_FIELD(thinking_##name)
#define SPECD_DRAFT_PARAM(type, name, ...) SPECD_FIELD(draft_##name)
#include "speculative/param_list.inc"
#undef SPECD_FIELD
}

}  // namespace

void InitFields(specd_params* params) {
  const SequenceParams defaults;
  ForEachField(*params, [&defaults](const ParamRow& row, auto& field) {
    field = static_cast<std::remove_cvref_t<decltype(field)>>(NumberOf(row, defaults));
  });
}

NamedNumbers ChangedFields(const specd_params& params) {
  const SequenceParams defaults;
  NamedNumbers numbers;
  ForEachField(params, [&](const ParamRow& row, const auto& field) {
    const double value = field;
    if (value != NumberOf(row, defaults)) numbers.emplace_back(row.field, value);
  });
  return numbers;
}

}  // namespace specd
