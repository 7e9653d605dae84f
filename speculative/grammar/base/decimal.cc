#include "speculative/grammar/base/decimal.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace specd::grammar {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// No exponent is larger than this; a larger one is as far away.
constexpr int64_t kExponentMax = int64_t{1} << 40;

}  // namespace

bool IsJsonNumber(std::string_view text) {
  size_t at = 0;
  const auto skip_digits = [&] {
    const size_t begin = at;
    while (at < text.size() && IsDigit(text[at])) ++at;
    return at - begin;
  };
  if (at < text.size() && text[at] == '-') ++at;
  const bool begins_with_zero = at < text.size() && text[at] == '0';
  const size_t num_whole = skip_digits();
  if (num_whole == 0 || (begins_with_zero && num_whole > 1)) return false;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (skip_digits() == 0) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    if (skip_digits() == 0) return false;
  }
  return at == text.size();
}

Decimal Decimal::Parse(std::string_view text) {
  SPECD_CHECK(IsJsonNumber(text));
  Decimal decimal;
  size_t at = 0;
  if (text[at] == '-') ++at;
  bool is_fraction = false;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      is_fraction = true;
      continue;
    }
    decimal.digits_ += text[at];
    if (is_fraction) --decimal.exponent_;
  }
  if (at < text.size()) {
    ++at;
    const bool is_negative = text[at] == '-';
    if (!IsDigit(text[at])) ++at;
    int64_t exponent = 0;
    for (; at < text.size(); ++at) {
      exponent = std::min(exponent * 10 + (text[at] - '0'), kExponentMax);
    }
    decimal.exponent_ += is_negative ? -exponent : exponent;
  }
  decimal.digits_.erase(0,
                        std::min(decimal.digits_.find_first_not_of('0'), decimal.digits_.size()));
  while (!decimal.digits_.empty() && decimal.digits_.back() == '0') {
    decimal.digits_.pop_back();
    ++decimal.exponent_;
  }
  if (decimal.digits_.empty()) return Decimal();
  decimal.is_negative_ = text[0] == '-';
  return decimal;
}

Decimal Decimal::FromInteger(int64_t value) { return Parse(std::to_string(value)); }

Decimal Decimal::Negated() const {
  Decimal negated = *this;
  if (!IsZero()) negated.is_negative_ = !is_negative_;
  return negated;
}

Decimal Decimal::Floor() const {
  if (IsInteger()) return *this;
  const Decimal whole = Parse(WholeDigits());
  return is_negative_ ? whole.PlusOne().Negated() : whole;
}

Decimal Decimal::Ceiling() const { return Negated().Floor().Negated(); }

Decimal Decimal::PlusOne() const {
  SPECD_CHECK(IsInteger());
  std::string digits = WholeDigits();
  if (is_negative_) {
    // The magnitude is at least one, so the borrow ends.
    size_t at = digits.size() - 1;
    while (digits[at] == '0') digits[at--] = '9';
    --digits[at];
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
    return Parse(digits).Negated();
  }
  digits.insert(digits.begin(), '0');
  size_t at = digits.size() - 1;
  while (digits[at] == '9') digits[at--] = '0';
  ++digits[at];
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return Parse(digits);
}

bool Decimal::IsMultipleOf(uint32_t step, uint32_t scale) const {
  if (IsZero()) return true;
  int64_t power = exponent_ + static_cast<int64_t>(scale);
  if (power < 0) return false;  // the last digit is not zero, and smaller than a step can be
  uint64_t residue = 0;
  for (const char digit : digits_) {
    residue = (residue * 10 + static_cast<uint64_t>(digit - '0')) % step;
  }
  for (uint64_t factor = 10 % step; power > 0; power /= 2, factor = factor * factor % step) {
    if (power % 2 == 1) residue = residue * factor % step;
  }
  return residue == 0;
}

bool Decimal::IsPlain() const {
  const int64_t num_digits = digits_.size();
  return num_digits <= kPlainDigitsMax && exponent_ <= kPlainDigitsMax &&
         exponent_ >= -kPlainDigitsMax && num_digits + exponent_ <= kPlainDigitsMax;
}

std::string Decimal::WholeDigits() const {
  SPECD_CHECK(IsPlain());
  const int64_t num_digits = digits_.size();
  if (IsZero() || num_digits + exponent_ <= 0) return "0";
  if (exponent_ >= 0) return digits_ + std::string(static_cast<size_t>(exponent_), '0');
  return digits_.substr(0, num_digits + exponent_);
}

std::string Decimal::FractionDigits() const {
  SPECD_CHECK(IsPlain());
  const int64_t num_digits = digits_.size();
  if (IsInteger()) return "";
  if (num_digits + exponent_ < 0) {
    return std::string(static_cast<size_t>(-exponent_ - num_digits), '0') + digits_;
  }
  return digits_.substr(num_digits + exponent_);
}

std::string Decimal::ToPlainText() const {
  const std::string fraction = FractionDigits();
  return (is_negative_ ? "-" : "") + WholeDigits() + (fraction.empty() ? "" : "." + fraction);
}

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (IsZero() || other.IsZero() || is_negative_ != other.is_negative_) {
    const int sign = IsZero() ? 0 : is_negative_ ? -1 : 1;
    const int other_sign = other.IsZero() ? 0 : other.is_negative_ ? -1 : 1;
    return sign <=> other_sign;
  }
  const Decimal& small = is_negative_ ? other : *this;
  const Decimal& large = is_negative_ ? *this : other;
  // The place of the first digit decides, then the digits.
  const int64_t place = small.exponent_ + static_cast<int64_t>(small.digits_.size());
  const int64_t other_place = large.exponent_ + static_cast<int64_t>(large.digits_.size());
  if (place != other_place) return place <=> other_place;
  return small.digits_.compare(large.digits_) <=> 0;
}

}  // namespace specd::grammar
