#include "speculative/grammar/json_schema/number_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "kernels/core/check.h"
#include "speculative/grammar/automata/dfa_explorer.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {
namespace {

using Kind = NumberSchema::Kind;

absl::Status TooManySteps() {
  return absl::UnimplementedError(
      fmt::format("multiples are counted for divisors of at most {} steps of their last digit",
                  kMultipleStepMax));
}

// A bound on the magnitude, digit by digit.
struct DigitBound {
  std::string whole;
  std::string fraction;
  bool is_exclusive = false;
};

// Where a text stands against a bound, as far as it has been read: its digits are smaller, equal or
// larger. While the whole part is read this compares digits alone; the count of digits decides at
// its end.
int CompareDigit(int order, uint32_t digit, uint32_t bound_digit) {
  if (order != 0) return order;
  return digit < bound_digit ? -1 : digit > bound_digit ? 1 : 0;
}

// Follows a plain decimal from left to right.
class DecimalWalk {
 public:
  // kZeros: zeros after the digits that decide.
  enum class Phase : uint8_t { kStart, kMinus, kZero, kWhole, kPoint, kFraction, kZeros };
  struct State {
    Phase phase = Phase::kStart;
    bool is_negative = false;
    bool has_fraction = false;  // a digit after the point is not zero
    uint32_t num_digits = 0;    // of the part that is being read, as far as they matter
    int low = 0;
    int high = 0;
    uint32_t residue = 0;

    auto operator<=>(const State&) const = default;
  };

  explicit DecimalWalk(const NumberSchema& schema);

  std::optional<State> Step(const State& state, uint8_t byte) const;
  bool IsAccepting(const State& state) const;

 private:
  // Both bounds of the magnitude on one side of zero.
  struct Side {
    bool is_empty = false;
    std::optional<DigitBound> low;
    std::optional<DigitBound> high;
  };

  static DigitBound MakeBound(const Decimal& value, bool is_exclusive) {
    return {value.WholeDigits(), value.FractionDigits(), is_exclusive};
  }
  const Side& SideOf(const State& state) const { return sides_[state.is_negative ? 1 : 0]; }
  // The order of a finished whole part, and of a finished fraction.
  static int EndWhole(const State& state, int order, const DigitBound& bound);
  static int EndFraction(const State& state, int order, const DigitBound& bound);
  std::optional<State> StepWhole(const State& state, uint32_t digit) const;
  std::optional<State> StepFraction(const State& state, uint32_t digit) const;
  std::optional<State> StepPoint(const State& state) const;
  // One zero more; before it the value is complete, or the point stands.
  static std::optional<State> StepZeros(const State& state, uint32_t digit);
  uint32_t NextResidue(uint32_t residue, uint32_t digit) const {
    return schema_.step == 0
               ? 0
               : static_cast<uint32_t>((uint64_t{residue} * 10 + digit) % schema_.step);
  }

  const NumberSchema& schema_;
  Side sides_[2];  // not negative, negative
  uint32_t num_whole_max_ = 1;
  uint32_t num_fraction_max_ = 1;
};

DecimalWalk::DecimalWalk(const NumberSchema& schema) : schema_(schema) {
  const Decimal zero;
  if (schema.min.has_value()) {
    const NumberBound& min = *schema.min;
    if (min.value > zero || (min.value == zero && min.is_exclusive)) {
      sides_[0].low = MakeBound(min.value, min.is_exclusive);
      sides_[1].is_empty = true;
    } else {
      sides_[1].high = MakeBound(min.value, min.is_exclusive);
      sides_[1].is_empty = min.value == zero;
    }
  }
  // Zero has no sign.
  sides_[1].low = MakeBound(zero, true);
  if (schema.max.has_value()) {
    const NumberBound& max = *schema.max;
    if (max.value < zero) sides_[1].low = MakeBound(max.value, max.is_exclusive);
    if (max.value < zero || (max.value == zero && max.is_exclusive)) {
      sides_[0].is_empty = true;
    } else {
      sides_[0].high = MakeBound(max.value, max.is_exclusive);
    }
  }
  for (const Side& side : sides_) {
    for (const std::optional<DigitBound>* bound : {&side.low, &side.high}) {
      if (!bound->has_value()) continue;
      const uint32_t num_whole = (*bound)->whole.size();
      const uint32_t num_fraction = (*bound)->fraction.size();
      num_whole_max_ = std::max(num_whole_max_, num_whole + 1);
      num_fraction_max_ = std::max(num_fraction_max_, num_fraction);
    }
  }
  num_fraction_max_ = std::max(num_fraction_max_, schema.scale);
}

int DecimalWalk::EndWhole(const State& state, int order, const DigitBound& bound) {
  if (state.num_digits < bound.whole.size()) return -1;
  return state.num_digits > bound.whole.size() ? 1 : order;
}

int DecimalWalk::EndFraction(const State& state, int order, const DigitBound& bound) {
  // A bound's last digit is not zero.
  return order == 0 && state.num_digits < bound.fraction.size() ? -1 : order;
}

std::optional<DecimalWalk::State> DecimalWalk::StepWhole(const State& state, uint32_t digit) const {
  State next = state;
  next.phase = state.num_digits == 0 && digit == 0 ? Phase::kZero : Phase::kWhole;
  const auto compare = [&](int order, const std::optional<DigitBound>& bound) {
    if (!bound.has_value()) return 0;
    if (state.num_digits >= bound->whole.size()) return 1;
    return CompareDigit(order, digit, static_cast<uint32_t>(bound->whole[state.num_digits] - '0'));
  };
  next.low = compare(state.low, SideOf(state).low);
  next.high = compare(state.high, SideOf(state).high);
  next.num_digits = std::min(state.num_digits + 1, num_whole_max_);
  next.residue = NextResidue(state.residue, digit);
  return next;
}

std::optional<DecimalWalk::State> DecimalWalk::StepFraction(const State& state,
                                                            uint32_t digit) const {
  if (schema_.step != 0 && state.num_digits >= schema_.scale) {
    return IsAccepting(state) ? StepZeros(state, digit) : std::nullopt;
  }
  State next = state;
  next.phase = Phase::kFraction;
  next.has_fraction = schema_.kind == Kind::kNotInteger && (state.has_fraction || digit != 0);
  const auto compare = [&](int order, const std::optional<DigitBound>& bound) {
    if (!bound.has_value()) return 0;
    const size_t at = state.num_digits;
    return CompareDigit(
        order, digit,
        at < bound->fraction.size() ? static_cast<uint32_t>(bound->fraction[at] - '0') : 0);
  };
  next.low = compare(state.low, SideOf(state).low);
  next.high = compare(state.high, SideOf(state).high);
  next.num_digits = std::min(state.num_digits + 1, num_fraction_max_);
  next.residue = NextResidue(state.residue, digit);
  return next;
}

std::optional<DecimalWalk::State> DecimalWalk::Step(const State& state, uint8_t byte) const {
  if (byte == '-') {
    if (state.phase != Phase::kStart || sides_[1].is_empty) return std::nullopt;
    return State{.phase = Phase::kMinus, .is_negative = true};
  }
  if (byte == '.') return StepPoint(state);
  const uint32_t digit = byte - '0';
  switch (state.phase) {
    case Phase::kStart:
      if (sides_[0].is_empty) return std::nullopt;
      return StepWhole(state, digit);
    case Phase::kMinus:
    case Phase::kWhole:
      return StepWhole(state, digit);
    case Phase::kZero:
      return std::nullopt;
    case Phase::kPoint:
    case Phase::kFraction:
      return StepFraction(state, digit);
    case Phase::kZeros:
      return StepZeros(state, digit);
  }
  return std::nullopt;
}

std::optional<DecimalWalk::State> DecimalWalk::StepPoint(const State& state) const {
  if (state.phase != Phase::kZero && state.phase != Phase::kWhole) return std::nullopt;
  const bool is_whole_only =
      schema_.kind == Kind::kInteger || (schema_.step != 0 && schema_.scale == 0);
  if (is_whole_only) {
    // Zeros change no value, so nothing but their number is left to follow.
    if (schema_.is_without_point || !IsAccepting(state)) return std::nullopt;
    return State{.phase = Phase::kZeros};
  }
  State next = state;
  next.phase = Phase::kPoint;
  next.num_digits = 0;
  const Side& side = SideOf(state);
  if (side.low.has_value()) next.low = EndWhole(state, state.low, *side.low);
  if (side.high.has_value()) next.high = EndWhole(state, state.high, *side.high);
  return next;
}

std::optional<DecimalWalk::State> DecimalWalk::StepZeros(const State& state, uint32_t digit) {
  if (digit != 0 || state.num_digits >= kZeroDigitsMax) return std::nullopt;
  return State{.phase = Phase::kZeros, .num_digits = state.num_digits + 1};
}

bool DecimalWalk::IsAccepting(const State& state) const {
  if (state.phase == Phase::kZeros) return state.num_digits > 0;
  const bool is_whole = state.phase == Phase::kZero || state.phase == Phase::kWhole;
  if (!is_whole && state.phase != Phase::kFraction) return false;
  if (schema_.kind == Kind::kNotInteger && !state.has_fraction) return false;
  const auto compare = [&](int order, const DigitBound& bound) {
    if (!is_whole) return EndFraction(state, order, bound);
    const int whole_order = EndWhole(state, order, bound);
    return whole_order == 0 && !bound.fraction.empty() ? -1 : whole_order;
  };
  const Side& side = SideOf(state);
  if (side.low.has_value()) {
    const int order = compare(state.low, *side.low);
    if (order < 0 || (order == 0 && side.low->is_exclusive)) return false;
  }
  if (side.high.has_value()) {
    const int order = compare(state.high, *side.high);
    if (order > 0 || (order == 0 && side.high->is_exclusive)) return false;
  }
  uint32_t residue = state.residue;
  for (uint32_t i = is_whole ? 0 : state.num_digits; i < schema_.scale; ++i) {
    residue = NextResidue(residue, 0);
  }
  return residue == 0;
}

// The stricter of two lower bounds, or of two upper bounds if `is_upper`.
std::optional<NumberBound> StricterBound(const std::optional<NumberBound>& a,
                                         const std::optional<NumberBound>& b, bool is_upper) {
  if (!a.has_value()) return b;
  if (!b.has_value()) return a;
  if (a->value == b->value) {
    return NumberBound{a->value, a->is_exclusive || b->is_exclusive};
  }
  return (a->value < b->value) == is_upper ? a : b;
}

}  // namespace

bool NumberSchema::IsEmpty() const {
  if (!min.has_value() || !max.has_value()) return false;
  if (min->value > max->value) return true;
  if (min->value == max->value) {
    return min->is_exclusive || max->is_exclusive || !Allows(min->value);
  }
  if (kind != Kind::kInteger || !min->value.IsPlain() || !max->value.IsPlain()) return false;
  Decimal first = min->value.Ceiling();
  if (min->is_exclusive && first == min->value) first = first.PlusOne();
  return first > max->value || (first == max->value && max->is_exclusive);
}

bool NumberSchema::Allows(const Decimal& value) const {
  if (kind == Kind::kInteger && !value.IsInteger()) return false;
  if (kind == Kind::kNotInteger && value.IsInteger()) return false;
  if (min.has_value() && (value < min->value || (min->is_exclusive && value == min->value))) {
    return false;
  }
  if (max.has_value() && (value > max->value || (max->is_exclusive && value == max->value))) {
    return false;
  }
  return step == 0 || value.IsMultipleOf(step, scale);
}

absl::StatusOr<NumberSchema> MergeNumbers(const NumberSchema& a, const NumberSchema& b) {
  NumberSchema merged;
  merged.min = StricterBound(a.min, b.min, false);
  merged.max = StricterBound(a.max, b.max, true);
  merged.kind = a.kind == Kind::kAny ? b.kind : a.kind;
  merged.is_without_point = a.is_without_point || b.is_without_point;
  if (a.kind != Kind::kAny && b.kind != Kind::kAny && a.kind != b.kind) {
    // No number is both: bounds that exclude everything say so.
    merged.min = merged.max = NumberBound{Decimal(), true};
  }
  if (a.step == 0 || b.step == 0) {
    const NumberSchema& source = a.step == 0 ? b : a;
    merged.step = source.step;
    merged.scale = source.scale;
    return merged;
  }
  merged.scale = std::max(a.scale, b.scale);
  const auto scaled = [&](const NumberSchema& schema) {
    uint64_t step = schema.step;
    for (uint32_t i = schema.scale; i < merged.scale; ++i) {
      step = std::min(step * 10, uint64_t{kMultipleStepMax} * 10);
    }
    return step;
  };
  const uint64_t a_step = scaled(a);
  const uint64_t b_step = scaled(b);
  if (a_step > kMultipleStepMax || b_step > kMultipleStepMax) return TooManySteps();
  const uint64_t step = std::lcm(a_step, b_step);
  if (step > kMultipleStepMax) return TooManySteps();
  merged.step = static_cast<uint32_t>(step);
  return merged;
}

absl::StatusOr<List<NumberSchema>> ForbiddenNumbers(const NumberSchema& schema) {
  List<NumberSchema> forbidden;
  if (schema.step != 0) {
    return absl::UnimplementedError("the numbers that are no multiples cannot be offered");
  }
  if (schema.kind != Kind::kAny) {
    forbidden.push_back(
        {.kind = schema.kind == Kind::kInteger ? Kind::kNotInteger : Kind::kInteger});
  }
  if (schema.min.has_value()) {
    forbidden.push_back({.max = NumberBound{schema.min->value, !schema.min->is_exclusive}});
  }
  if (schema.max.has_value()) {
    forbidden.push_back({.min = NumberBound{schema.max->value, !schema.max->is_exclusive}});
  }
  return forbidden;
}

absl::Status SetMultipleOf(const Decimal& divisor, NumberSchema* schema) {
  SPECD_CHECK(divisor > Decimal());
  if (!divisor.IsPlain()) return TooManySteps();
  const std::string fraction = divisor.FractionDigits();
  uint64_t step = 0;
  for (const char digit : divisor.WholeDigits() + fraction) {
    step = std::min(step * 10 + static_cast<uint64_t>(digit - '0'), uint64_t{kMultipleStepMax} + 1);
  }
  if (step > kMultipleStepMax) return TooManySteps();
  schema->step = static_cast<uint32_t>(step);
  schema->scale = static_cast<uint32_t>(fraction.size());
  return absl::OkStatus();
}

absl::StatusOr<ExprId> BuildNumber(const NumberSchema& schema, JsonText* text,
                                   GrammarRules* rules) {
  if (schema.IsUnconstrained()) return text->Number();
  if (!schema.min.has_value() && !schema.max.has_value() && schema.step == 0 &&
      schema.kind == Kind::kInteger) {
    return schema.is_without_point ? text->Integer()
                                   : rules->Sequence({text->Integer(), text->ZeroFraction()});
  }
  for (const std::optional<NumberBound>* bound : {&schema.min, &schema.max}) {
    if (!bound->has_value() || (*bound)->value.IsPlain()) continue;
    return absl::UnimplementedError(
        fmt::format("a bound of more than {} digits is not enforced", Decimal::kPlainDigitsMax));
  }
  List<ByteRange> ranges = {{'-', '-'}, {'.', '.'}};
  for (char digit = '0'; digit <= '9'; ++digit) {
    ranges.push_back({static_cast<uint8_t>(digit), static_cast<uint8_t>(digit)});
  }
  const DecimalWalk walk(schema);
  absl::StatusOr<ByteDfa> dfa = ExploreDfa(
      DecimalWalk::State{}, ranges,
      [&](const DecimalWalk::State& state, uint8_t byte) { return walk.Step(state, byte); },
      [&](const DecimalWalk::State& state) { return walk.IsAccepting(state); });
  if (!dfa.ok()) return absl::UnimplementedError("its bounds and multiples need too many states");
  return rules->Automaton(*std::move(dfa));
}

}  // namespace specd::grammar
