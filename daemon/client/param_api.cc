// The C functions of <specd/sequences.h> about the parameter table: defaults, its numbers one by
// one, and refused names. No exception leaves this file.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/client/api_guard.h"
#include "daemon/client/param_fields.h"
#include "daemon/client/struct_array.h"
#include "speculative/params/param_numbers.h"
#include "speculative/params/param_rules.h"

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

// The text of each refused name, by the name and the refused value. The keys view constant data.
using RefusedTexts = std::map<std::pair<std::string_view, std::string_view>, std::string>;

const RefusedTexts& AllRefusedTexts() {
  static const RefusedTexts texts = [] {
    RefusedTexts all;
    const auto add = [&](std::string_view name, std::string_view value) {
      std::optional<std::string> text = RefusedParam(name, value);
      if (text.has_value()) all.try_emplace({name, value}, *std::move(text));
    };
    for (const RefusedName& refused : RefusedNames()) add(refused.name, refused.value);
    for (const ParamRow& row : ParamTable()) {
      add(row.vllm_name, {});
      add(row.sglang_name, {});
    }
    return all;
  }();
  return texts;
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

const char* specd_refused_param(const char* name, const char* value) {
  if (name == nullptr) return nullptr;
  const char* text = nullptr;
  specd::api::Guard([&] {
    const specd::RefusedTexts& texts = specd::AllRefusedTexts();
    auto found = texts.find({name, {}});
    if (found == texts.end() && value != nullptr) found = texts.find({name, value});
    if (found != texts.end()) text = found->second.c_str();
    return absl::OkStatus();
  });
  return text;
}

}  // extern "C"
