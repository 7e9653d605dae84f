#include "speculative/grammar/json_schema/constant_validator.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "kernels/core/check.h"

namespace specd::grammar {
namespace {

constexpr uint64_t kUnitsPerComparison = 8;  // estimate

}  // namespace

absl::StatusOr<bool> ConstantValidator::Allows(const SchemaSet& set, const JsonValue& value,
                                               bool with_formats) {
  const Budget::Level level;
  if (!level.ok() || !Budget::Spend(1)) return Budget::Refusal();
  for (const SchemaTerm& term : set) {
    const absl::StatusOr<ValueSource::Shared> allowed = source_.OfTerm(term);
    if (!allowed.ok()) return allowed.status();
    const absl::StatusOr<bool> is_allowed = Allows(**allowed, value, with_formats);
    if (!is_allowed.ok() || !*is_allowed) return is_allowed;
  }
  return true;
}

absl::StatusOr<bool> ConstantValidator::Allows(const AllowedValues& allowed, const JsonValue& value,
                                               bool with_formats) {
  is_exact_ = is_exact_ && allowed.is_exact;
  for (const SchemaAlternative& alternative : allowed.alternatives) {
    const absl::StatusOr<bool> is_allowed = AllowsOne(alternative, value, with_formats);
    if (!is_allowed.ok() || *is_allowed) return is_allowed;
  }
  return false;
}

absl::StatusOr<bool> ConstantValidator::AllowsOne(const SchemaAlternative& alternative,
                                                  const JsonValue& value, bool with_formats) {
  if (alternative.type != value.type) return false;
  if (alternative.constant != nullptr) {
    return AreEqualJson(*alternative.constant, value) &&
           !(with_formats && alternative.is_constant_unoffered);
  }
  switch (value.type) {
    case JsonType::kNull:
      return true;
    case JsonType::kBoolean:
      return value.boolean ? alternative.allows_true : alternative.allows_false;
    case JsonType::kNumber:
      return alternative.number.Allows(Decimal::Parse(value.text));
    case JsonType::kString:
      return alternative.string.Allows(value.text, with_formats);
    case JsonType::kArray:
      return AllowsArray(alternative.array, value, with_formats);
    case JsonType::kObject:
      return AllowsObject(alternative.object, value, with_formats);
  }
  SPECD_CHECK(false);
  return false;
}

absl::StatusOr<bool> ConstantValidator::ContainsEnough(const ContainedItems& contained,
                                                       const JsonValue& value, bool with_formats) {
  const bool was_exact = std::exchange(is_exact_, true);
  size_t num_found = 0;
  for (size_t i = contained.from; i < value.values.size(); ++i) {
    const absl::StatusOr<bool> is_wanted =
        Allows(contained.schemas, value.values[i], with_formats && contained.max == kUnbounded);
    if (!is_wanted.ok()) return is_wanted;
    num_found += *is_wanted ? 1 : 0;
  }
  // More items match a schema that has lost a part, so they say nothing about a maximum.
  const bool is_count_exact = std::exchange(is_exact_, was_exact && is_exact_);
  return num_found >= contained.min && (num_found <= contained.max || !is_count_exact);
}

absl::StatusOr<bool> ConstantValidator::HasNeeded(const NeededMember& needed,
                                                  const JsonValue& value, bool with_formats) {
  for (size_t i = 0; i < value.values.size(); ++i) {
    if (!needed.names->Accepts(value.names[i])) continue;
    const absl::StatusOr<bool> is_met = Allows(needed.schemas, value.values[i], with_formats);
    if (!is_met.ok() || *is_met) return is_met;
  }
  return false;
}

absl::StatusOr<bool> ConstantValidator::AllowsArray(const ArraySchema& schema,
                                                    const JsonValue& value, bool with_formats) {
  const size_t num_items = value.values.size();
  if (num_items < schema.min_items || num_items > schema.max_items) return false;
  for (const UnofferedKeyword& unoffered : schema.unoffered) {
    if (unoffered.keyword == "uniqueItems") {
      for (size_t i = 0; i < num_items; ++i) {
        for (size_t j = 0; j < i; ++j) {
          if (!Budget::Spend(kUnitsPerComparison)) return Budget::Refusal();
          if (AreEqualJson(value.values[i], value.values[j])) return false;
        }
      }
    } else {
      return absl::UnimplementedError(
          fmt::format("a constant is not checked against {}", unoffered.keyword));
    }
  }
  for (const ContainedItems& contained : schema.contained) {
    const absl::StatusOr<bool> is_enough = ContainsEnough(contained, value, with_formats);
    if (!is_enough.ok() || !*is_enough) return is_enough;
  }
  for (size_t i = 0; i < num_items; ++i) {
    const absl::StatusOr<bool> is_allowed = Allows(schema.Item(i), value.values[i], with_formats);
    if (!is_allowed.ok() || !*is_allowed) return is_allowed;
  }
  return true;
}

absl::StatusOr<bool> ConstantValidator::AllowsObject(const ObjectSchema& schema,
                                                     const JsonValue& value, bool with_formats) {
  const size_t num_members = value.values.size();
  if (num_members < schema.min_properties || num_members > schema.max_properties) return false;
  if (!schema.unoffered.empty()) {
    return absl::UnimplementedError(
        fmt::format("a constant is not checked against {}", schema.unoffered[0].keyword));
  }
  for (const PropertySchema& property : schema.properties) {
    if (property.is_required && value.Find(property.name) == nullptr) return false;
  }
  for (const NeededMember& needed : schema.needed) {
    const absl::StatusOr<bool> is_met = HasNeeded(needed, value, with_formats);
    if (!is_met.ok() || !*is_met) return is_met;
  }
  for (size_t i = 0; i < num_members; ++i) {
    const absl::StatusOr<bool> is_allowed =
        Allows(schema.SchemasOf(value.names[i]), value.values[i], with_formats);
    if (!is_allowed.ok() || !*is_allowed) return is_allowed;
  }
  return true;
}

}  // namespace specd::grammar
