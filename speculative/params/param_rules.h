// ParamRules lists combinations that contradict each other, and RefusedNames the names that peers
// know and specd does not. Both are refused although each value is in its range.
//
// ValidateParams walks the rules after the table. docs/PARAMETERS.md prints both lists. Code that
// reads parameters by name calls RefusedParam for a name that the table does not have. Constant
// data, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "speculative/params/params.h"

namespace specd {

// A rule names parameters that contradict each other, and says when.
struct ParamRule {
  std::string_view fields[4];  // the fields whose values the refusal shows; empty: fewer than four
  std::string_view when;       // the condition in words
  std::string_view why;
  std::string_view remedy;
  bool (*broken)(const SequenceParams& params, int32_t vocab_size);
};

std::span<const ParamRule> ParamRules();

// Returns the first broken rule as an error, with the values that it judged. REQUIRES: each value
// is in its own range.
absl::Status CheckRules(const SequenceParams& params, int32_t vocab_size);

// A parameter, or one value of a parameter, that a user of vLLM, SGLang or the OpenAI API may send.
struct RefusedName {
  std::string_view name;
  std::string_view value;  // empty: any value
  std::string_view why;
  std::string_view remedy;
};

std::span<const RefusedName> RefusedNames();

// Returns why specd refuses this name (with this value) and what to do instead. The name may be a
// peer's name of a parameter that has another name here. Returns nothing if no peer knows the name,
// or if it is a field of the table without such a refused value.
std::optional<std::string> RefusedParam(std::string_view name, std::string_view value = {});

}  // namespace specd
