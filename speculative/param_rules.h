// What is refused although each value lies in its range: combinations that contradict each other,
// and names that peers know and specd does not.
//
// ValidateParams walks the rules after the table; docs/PARAMETERS.md prints both lists; whoever
// reads parameters by name asks RefusedParam about a name that the table does not have. Constant
// data, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "speculative/params.h"

namespace specd {

// A combination that would be ignored, or would leave nothing to sample.
struct ParamRule {
  std::string_view fields[4];  // whose values the refusal shows; empty: fewer than four
  std::string_view when;       // the predicate in words
  std::string_view why;
  std::string_view remedy;
  bool (*broken)(const SequenceParams& params, int32_t vocab_size);
};

std::span<const ParamRule> ParamRules();

// The first broken rule, with the values it judged. REQUIRES: each value is in its own range.
absl::Status CheckRules(const SequenceParams& params, int32_t vocab_size);

// A parameter, or one value of a parameter, that a user of vLLM, SGLang or the OpenAI API may send.
struct RefusedName {
  std::string_view name;
  std::string_view value;  // empty: whatever its value
  std::string_view why;
  std::string_view remedy;
};

std::span<const RefusedName> RefusedNames();

// Why a parameter cannot be had under this name (with this value) and what to do instead: it is
// refused, or a peer's name of a parameter that has another name here. Nothing where the name is
// unknown to everybody, or is a field of the table without such a value.
std::optional<std::string> RefusedParam(std::string_view name, std::string_view value = {});

}  // namespace specd
