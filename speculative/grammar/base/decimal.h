// Decimal is a JSON number as it is written: any number of digits, no rounding.
//
// The bounds of a schema are compared and written digit by digit, so that neither 64 bits nor a
// double limits them. A value type.
//
//   const Decimal bound = Decimal::Parse("1.50e3");   // 1500
//   bound.IsInteger();                                // true
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace specd::grammar {

// `text` is a number by the grammar of RFC 8259 section 6.
bool IsJsonNumber(std::string_view text);

class Decimal {
 public:
  Decimal() = default;  // zero

  // REQUIRES: IsJsonNumber(text).
  static Decimal Parse(std::string_view text);
  static Decimal FromInteger(int64_t value);

  bool IsZero() const { return digits_.empty(); }
  bool IsNegative() const { return is_negative_; }
  bool IsInteger() const { return IsZero() || exponent_ >= 0; }
  Decimal Negated() const;
  // The nearest integer that is not above (below) this.
  // REQUIRES: IsPlain().
  Decimal Floor() const;
  Decimal Ceiling() const;
  // REQUIRES: IsInteger() and IsPlain().
  Decimal PlusOne() const;

  // True if this is a whole number of steps of `step` / 10^`scale`. REQUIRES: step > 0.
  bool IsMultipleOf(uint32_t step, uint32_t scale) const;

  // True if it can be written without an exponent in at most kPlainDigitsMax digits.
  bool IsPlain() const;
  static constexpr int64_t kPlainDigitsMax = 512;
  // The digits before and after the point, of the magnitude: "0" or no leading zero; no zero at the
  // end. REQUIRES: IsPlain().
  std::string WholeDigits() const;
  std::string FractionDigits() const;
  // REQUIRES: IsPlain().
  std::string ToPlainText() const;

  friend bool operator==(const Decimal&, const Decimal&) = default;
  std::strong_ordering operator<=>(const Decimal& other) const;

 private:
  // The value is digits_ * 10^exponent_; digits_ has no zero at either end, and is empty for zero.
  std::string digits_;
  int64_t exponent_ = 0;
  bool is_negative_ = false;
};

}  // namespace specd::grammar
