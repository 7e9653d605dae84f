#include "speculative/params/param_numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/core/nearest_name.h"
#include "speculative/params/param_rules.h"

namespace specd {
namespace {

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, uint64_t>;

absl::Status Refuse(std::string_view text) {
  return absl::InvalidArgumentError(absl::string_view(text.data(), text.size()));
}

// Tells whether T holds exactly this value. Both bounds are exact doubles: a power of 2 or its
// negative.
template <class T>
bool Holds(double value) {
  const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
  return value >= static_cast<double>(std::numeric_limits<T>::min()) && value < end &&
         std::trunc(value) == value;
}

class Setter {
 public:
  Setter(const ParamRow& row, double value, SequenceParams* params)
      : row_(row), value_(value), params_(params) {}

  absl::Status operator()(const ParamPlace<double>& place) const {
    place.write(*params_) = value_;
    return absl::OkStatus();
  }
  absl::Status operator()(const ParamPlace<bool>& place) const {
    if (value_ != 0 && value_ != 1) {
      return Refuse(fmt::format("{} = {} must be 0 or 1; default {}", row_.field, value_,
                                NumberOf(row_, {})));
    }
    place.write(*params_) = value_ == 1;
    return absl::OkStatus();
  }
  absl::Status operator()(const ParamPlace<int64_t>& place) const { return Whole(place); }
  absl::Status operator()(const ParamPlace<TokenId>& place) const { return Whole(place); }
  absl::Status operator()(const ChoicePlace& place) const {
    if (!Holds<uint32_t>(value_)) return NotWhole();
    place.write(*params_, static_cast<uint32_t>(value_));
    return absl::OkStatus();
  }
  template <class T>
  absl::Status operator()(const ParamPlace<T>&) const {
    return Refuse(fmt::format("{} is not one number ({}); give it in its own field", row_.field,
                              row_.meaning));
  }

 private:
  template <class T>
  absl::Status Whole(const ParamPlace<T>& place) const {
    if (!Holds<T>(value_)) return NotWhole();
    place.write(*params_) = static_cast<T>(value_);
    return absl::OkStatus();
  }
  absl::Status NotWhole() const {
    return Refuse(fmt::format("{} = {} must be a whole number of {} ({}); default {}", row_.field,
                              value_, RangeText(row_), row_.meaning, ValueText(row_, {})));
  }

  const ParamRow& row_;
  const double value_;
  SequenceParams* const params_;
};

absl::Status Unknown(std::string_view name) {
  if (const std::optional<std::string> why = RefusedParam(name); why.has_value()) {
    return absl::UnimplementedError(*why);
  }
  std::vector<std::string_view> names;
  for (const ParamRow& row : ParamTable()) names.push_back(row.field);
  return Refuse(fmt::format("{} is no parameter{}; docs/PARAMETERS.md lists them",
                            name.substr(0, kNearNameBytesMax), DidYouMean(name, names)));
}

}  // namespace

bool IsNumber(const ParamRow& row) {
  return std::visit(
      [](const auto& place) {
        return kIsNumber<std::remove_cvref_t<decltype(place.read(SequenceParams{}))>>;
      },
      row.place);
}

double NumberOf(const ParamRow& row, const SequenceParams& params) {
  return std::visit(
      [&params](const auto& place) -> double {
        const auto& value = place.read(params);
        if constexpr (kIsNumber<std::remove_cvref_t<decltype(value)>>) {
          return static_cast<double>(value);
        } else {
          SPECD_CHECK(false);
          return 0;
        }
      },
      row.place);
}

absl::Status SetNumber(std::string_view name, double value, SequenceParams* params) {
  const ParamRow* row = FindParam(name);
  if (row == nullptr) return Unknown(name);
  return std::visit(Setter(*row, value, params), row->place);
}

}  // namespace specd
