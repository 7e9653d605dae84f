// The C functions of <specd/sequences.h> about the parameter table: defaults, and its numbers one
// by one. No exception leaves this file.

#include <string>
#include <vector>

#include "daemon/client/api_guard.h"
#include "daemon/client/param_fields.h"
#include "daemon/client/struct_array.h"
#include "speculative/param_numbers.h"

namespace specd {
namespace {

// The type of a parameter, and the ends of its range if the row names none.
struct TypeOf {
  const ParamRow& row;
  specd_param_info* info;

  void operator()(double) const { Set(SPECD_PARAM_NUMBER, row.range.minimum, row.range.maximum); }
  void operator()(int64_t) const { Set(SPECD_PARAM_INTEGER, row.range.minimum, row.range.maximum); }
  void operator()(TokenId) const { Set(SPECD_PARAM_INTEGER, kNoToken, kVocabSizeMax - 1); }
  void operator()(bool) const { Set(SPECD_PARAM_FLAG, 0, 1); }
  void operator()(uint32_t) const {
    Set(SPECD_PARAM_CHOICE, 0, static_cast<double>(row.choices.size() - 1));
  }
  template <class T>
  void operator()(const T&) const {
    SPECD_CHECK(false);  // not a number
  }

  void Set(uint32_t type, double minimum, double maximum) const {
    info->type = type;
    info->minimum = minimum;
    info->maximum = maximum;
  }
};

// The texts of a row are string literals, so their views end with a NUL.
struct NumberInfo {
  explicit NumberInfo(const ParamRow& row) : range(RangeText(row)) {
    for (const std::string_view choice : row.choices) choices.push_back(choice.data());
    info.name = row.field.data();
    info.vllm_name = row.vllm_name.data();
    info.sglang_name = row.sglang_name.data();
    info.meaning = row.meaning.data();
    info.default_value = NumberOf(row, {});
    std::visit([&](const auto& place) { TypeOf{row, &info}(place.read({})); }, row.place);
  }

  std::string range;
  std::vector<const char*> choices;
  specd_param_info info = {};
};

const std::vector<NumberInfo>& Numbers() {
  static const std::vector<NumberInfo> numbers = [] {
    std::vector<NumberInfo> all;
    for (const ParamRow& row : ParamTable()) {
      if (IsNumber(row)) all.emplace_back(row);
    }
    return all;
  }();
  return numbers;
}

}  // namespace
}  // namespace specd

extern "C" {

void specd_params_init(specd_params* params) {
  *params = {};
  params->struct_size = sizeof(*params);
  specd::InitFields(params);
}

int specd_get_param_info(uint32_t index, specd_param_info* info) {
  if (info == nullptr) return specd::api::NullArgument("info");
  return specd::api::Guard([&]() -> absl::StatusOr<int> {
    const std::vector<specd::NumberInfo>& numbers = specd::Numbers();
    if (index >= numbers.size()) return SPECD_EMPTY;
    specd::OutputArray<specd_param_info> out;
    if (absl::Status s = out.Check("info", info, 1, &out); !s.ok()) return s;
    const specd::NumberInfo& number = numbers[index];
    specd_param_info found = number.info;
    found.range = number.range.c_str();
    found.choices = {number.choices.data(), number.choices.size()};
    out.Put(0, found);
    return SPECD_OK;
  });
}

}  // extern "C"
