#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "speculative/processors/processor.h"
#include "speculative/processors/repeat_run.h"

namespace specd {
namespace {

constexpr ProcessorSpec kTable[] = {
    {"repeat_run", "bans an id that was just emitted max_run times in a row",
     RepeatRun::kParamSpecs, &RepeatRun::Make},
};

template <typename Specs>
std::string NamesOf(const Specs& specs) {
  std::vector<std::string_view> names;
  for (const auto& spec : specs) names.push_back(spec.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

template <typename Spec>
const Spec* FindByName(std::span<const Spec> specs, std::string_view name) {
  const auto at =
      std::find_if(specs.begin(), specs.end(), [&](const Spec& spec) { return spec.name == name; });
  return at == specs.end() ? nullptr : &*at;
}

absl::Status CheckValue(std::string_view processor, const ProcessorParamSpec& spec, double value) {
  // Written so that NaN fails too.
  const bool inside = value >= spec.minimum && value <= spec.maximum;
  if (inside && (!spec.whole || value == std::floor(value))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("processors: {}.{} = {} is not a {}number in {} .. {} ({}); default {}",
                  processor, spec.name, value, spec.whole ? "whole " : "", spec.minimum,
                  spec.maximum, spec.meaning, spec.default_value));
}

}  // namespace

std::span<const ProcessorSpec> ProcessorTable() { return kTable; }

absl::StatusOr<std::unique_ptr<Processor>> MakeProcessor(const ProcessorParams& params) {
  const ProcessorSpec* spec = FindByName(ProcessorTable(), params.name);
  if (spec == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("processors: \"{}\" is not compiled in; there are: {}", params.name,
                    NamesOf(ProcessorTable())));
  }
  std::vector<double> values;
  for (const ProcessorParamSpec& param : spec->params) values.push_back(param.default_value);
  std::vector<bool> given(values.size());
  for (const auto& [name, value] : params.values) {
    const ProcessorParamSpec* param = FindByName(spec->params, name);
    if (param == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("processors: {} has no parameter \"{}\"; it has: {}", spec->name, name,
                      NamesOf(spec->params)));
    }
    const size_t index = static_cast<size_t>(param - spec->params.data());
    if (given[index]) {
      return absl::InvalidArgumentError(
          fmt::format("processors: {}.{} is given twice; give it once", spec->name, name));
    }
    if (absl::Status status = CheckValue(spec->name, *param, value); !status.ok()) return status;
    given[index] = true;
    values[index] = value;
  }
  return spec->make(values);
}

}  // namespace specd
