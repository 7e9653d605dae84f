#include "speculative/grammar/json_schema/allowed_values.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "speculative/grammar/base/budget.h"

namespace specd::grammar {

bool SchemaAlternative::IsUnconstrained() const {
  if (constant != nullptr) return false;
  switch (type) {
    case JsonType::kNull:
      return true;
    case JsonType::kBoolean:
      return allows_true && allows_false;
    case JsonType::kNumber:
      return number.IsUnconstrained();
    case JsonType::kString:
      return string.IsUnconstrained();
    case JsonType::kArray:
      return array.IsUnconstrained();
    case JsonType::kObject:
      return object.IsUnconstrained();
  }
  return false;
}

bool SchemaAlternative::Includes(const SchemaAlternative& other) const {
  if (type != other.type) return false;
  if (IsUnconstrained()) return true;
  return type == JsonType::kObject && constant == nullptr && other.constant == nullptr &&
         object.Includes(other.object);
}

namespace {

// What a look at an alternative's lists need not find out again. Names have one of 64 bits each.
struct Outline {
  uint64_t required = 0;
  uint64_t constrained = 0;
  uint64_t terms = 0;  // of the properties' schemas, with the names
  bool forbids_any = false;
  size_t num_needed = 0;
  bool allows_all_others = true;

  explicit Outline(const SchemaAlternative& alternative) {
    const ObjectSchema& object = alternative.object;
    allows_all_others = object.AllowsAllOthers();
    num_needed = object.needed.size();
    for (const PropertySchema& property : object.properties) {
      const size_t name = absl::HashOf(property.name);
      const uint64_t bit = uint64_t{1} << name % 64;
      if (property.is_required) required |= bit;
      if (!property.schemas.empty()) constrained |= bit;
      forbids_any = forbids_any || IsNothing(property.schemas);
      for (const SchemaTerm& term : property.schemas) {
        terms |= uint64_t{1} << absl::HashOf(name, term) % 64;
      }
    }
  }
  // False only if the alternative does not include the other one.
  bool MayInclude(const Outline& other) const {
    if ((required & ~other.required) != 0 || num_needed > other.num_needed) return false;
    if (!other.allows_all_others) return true;
    return (constrained & ~other.constrained) == 0 &&
           (other.forbids_any || (terms & ~other.terms) == 0);
  }
};

}  // namespace

void AllowedValues::Absorb() {
  if (alternatives.size() <= 1) return;
  // Each is compared with each, and their properties too: estimate, 50 ms. Branches multiply step
  // by step, so a long list was shorter before.
  constexpr size_t kComparedMax = size_t{1} << 24;
  size_t num_properties = 1;
  for (const SchemaAlternative& alternative : alternatives) {
    num_properties = std::max(num_properties, alternative.object.properties.size());
  }
  if (alternatives.size() * alternatives.size() * num_properties * num_properties > kComparedMax) {
    return;
  }
  List<Outline> outlines(alternatives.begin(), alternatives.end());
  const auto includes = [&](size_t a, size_t b) {
    return outlines[a].MayInclude(outlines[b]) && alternatives[a].Includes(alternatives[b]);
  };
  List<size_t> largest;
  for (size_t i = 0; i < alternatives.size(); ++i) {
    Budget::Spend(1 + largest.size() / 8);  // the next merge looks whether it is spent
    if (std::any_of(largest.begin(), largest.end(), [&](size_t j) { return includes(j, i); })) {
      continue;
    }
    std::erase_if(largest, [&](size_t j) { return includes(i, j); });
    largest.push_back(i);
  }
  if (largest.size() == alternatives.size()) return;
  List<SchemaAlternative> kept;
  for (const size_t i : largest) kept.push_back(std::move(alternatives[i]));
  alternatives = std::move(kept);
}

AllowedValues AnyValue() {
  AllowedValues allowed;
  for (const JsonType type : kJsonTypes) allowed.alternatives.push_back({.type = type});
  return allowed;
}

}  // namespace specd::grammar
