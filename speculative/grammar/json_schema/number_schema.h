// NumberSchema holds what a schema asks of a number: bounds, a whole number or not, multiples.
//
// A value type. It is exact for values; BuildNumber offers one kind of spelling where there are
// bounds or multiples, or where a whole number is asked for: plain decimals, without an exponent,
// and never -0. Zeros may come after the digits that decide, as in 1.0, up to three
// digits after the point.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/decimal.h"
#include "speculative/grammar/json_schema/json_text.h"

namespace specd::grammar {

struct NumberBound {
  Decimal value = {};
  bool is_exclusive = false;
};

struct NumberSchema {
  enum class Kind : uint8_t { kAny, kInteger, kNotInteger };

  Kind kind = Kind::kAny;
  bool is_without_point = false;  // draft 4: 1.0 is no integer
  std::optional<NumberBound> min = {};
  std::optional<NumberBound> max = {};
  // A multiple of step / 10^scale; step 0 asks for nothing.
  uint32_t step = 0;
  uint32_t scale = 0;

  bool IsUnconstrained() const {
    return kind == Kind::kAny && !min.has_value() && !max.has_value() && step == 0;
  }
  // True only if no number is allowed.
  bool IsEmpty() const;
  bool Allows(const Decimal& value) const;
};

// The automaton of a multiple has a state for each residue.
inline constexpr uint32_t kMultipleStepMax = 4096;

// Unimplemented if the common multiple is past kMultipleStepMax.
absl::StatusOr<NumberSchema> MergeNumbers(const NumberSchema& a, const NumberSchema& b);

// The numbers that `schema` forbids: those of any of the results. None for an unconstrained one.
// Unimplemented for multiples.
absl::StatusOr<List<NumberSchema>> ForbiddenNumbers(const NumberSchema& schema);

// Sets step and scale. Unimplemented past kMultipleStepMax. REQUIRES: `divisor` > 0.
absl::Status SetMultipleOf(const Decimal& divisor, NumberSchema* schema);

absl::StatusOr<ExprId> BuildNumber(const NumberSchema& schema, JsonText* text, GrammarRules* rules);

}  // namespace specd::grammar
