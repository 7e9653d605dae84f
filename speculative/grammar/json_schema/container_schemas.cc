#include "speculative/grammar/json_schema/container_schemas.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "kernels/core/check.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/json_schema/dfa_table.h"

namespace specd::grammar {
namespace {

// The list without doubles.
template <typename T>
List<T> Join(List<T> joined, const List<T>& more) {
  for (const T& one : more) {
    if (std::find(joined.begin(), joined.end(), one) == joined.end()) joined.push_back(one);
  }
  return joined;
}

// The classes of all pairs: a name must satisfy what both sides ask of it.
absl::StatusOr<List<NameClass>> MergeClasses(const List<NameClass>& a, const List<NameClass>& b,
                                             DfaTable* dfas) {
  List<NameClass> merged;
  for (const NameClass& left : a) {
    for (const NameClass& right : b) {
      absl::StatusOr<SharedDfa> names = dfas->Intersect(left.names, right.names);
      if (!names.ok()) return names.status();
      if (*names != nullptr && (*names)->IsEmpty()) continue;
      if (merged.size() == kNameClassesMax) {
        return absl::ResourceExhaustedError(fmt::format(
            "patternProperties and propertyNames make more than {} classes of names; use fewer "
            "overlapping patterns",
            kNameClassesMax));
      }
      merged.push_back({*std::move(names), UniteSets(left.schemas, right.schemas)});
    }
  }
  return merged;
}

// Finds the properties of one object. A few are looked through, many are in a map.
class PropertyIndex {
 public:
  explicit PropertyIndex(const ObjectSchema& schema) : schema_(schema) {
    if (schema.properties.size() <= kLookedThroughMax) return;
    for (const PropertySchema& property : schema.properties) map_[property.name] = &property;
  }

  // Null if it is not declared.
  const PropertySchema* Find(std::string_view name) const {
    if (map_.empty()) return schema_.Find(name);
    const auto found = map_.find(name);
    return found == map_.end() ? nullptr : found->second;
  }
  bool HasPlace(std::string_view name) const {
    const PropertySchema* property = Find(name);
    return property != nullptr && property->has_place;
  }

 private:
  static constexpr size_t kLookedThroughMax = 8;

  const ObjectSchema& schema_;
  HashMap<std::string_view, const PropertySchema*> map_;
};

}  // namespace

ArraySchema MergeArrays(const ArraySchema& a, const ArraySchema& b) {
  ArraySchema merged;
  const size_t num_prefix = std::max(a.prefix.size(), b.prefix.size());
  for (size_t i = 0; i < num_prefix; ++i) {
    merged.prefix.push_back(UniteSets(a.Item(i), b.Item(i)));
  }
  merged.rest = UniteSets(a.rest, b.rest);
  merged.min_items = std::max(a.min_items, b.min_items);
  merged.max_items = std::min(a.max_items, b.max_items);
  merged.contained = Join(a.contained, b.contained);
  merged.unoffered = Join(a.unoffered, b.unoffered);
  return merged;
}

const PropertySchema* ObjectSchema::Find(std::string_view name) const {
  Budget::Spend(1 + properties.size() / 8);  // the caller's loop looks whether it is spent
  for (const PropertySchema& property : properties) {
    if (property.name == name) return &property;
  }
  return nullptr;
}

const SchemaSet& ObjectSchema::Other(std::string_view name) const {
  for (const NameClass& other : others) {
    if (other.names == nullptr || other.names->Accepts(name)) return other.schemas;
  }
  SPECD_CHECK(false);  // each name is in one class
  return others[0].schemas;
}

PropertySchema& ObjectSchema::Declare(std::string_view name) {
  Budget::Spend(1 + properties.size() / 8);
  for (PropertySchema& property : properties) {
    if (property.name == name) return property;
  }
  return properties.emplace_back(PropertySchema{.name = name, .schemas = Other(name)});
}

void ObjectSchema::Require(std::string_view name) { Declare(name).is_required = true; }

void ObjectSchema::Constrain(std::string_view name, const SchemaSet& schemas) {
  PropertySchema& property = Declare(name);
  property.schemas = UniteSets(property.schemas, schemas);
}

bool ObjectSchema::AllowsAllOthers() const {
  return std::all_of(others.begin(), others.end(),
                     [](const NameClass& other) { return other.schemas.empty(); });
}

bool ObjectSchema::Includes(const ObjectSchema& other) const {
  const auto all_in = [](const auto& few, const auto& many) {
    return std::all_of(few.begin(), few.end(), [&](const auto& one) {
      return std::find(many.begin(), many.end(), one) != many.end();
    });
  };
  const auto asks_no_more = [](const SchemaSet& here, const SchemaSet& there) {
    return std::includes(there.begin(), there.end(), here.begin(), here.end()) || IsNothing(there);
  };
  if (min_properties > other.min_properties || max_properties < other.max_properties) return false;
  if (!all_in(needed, other.needed) || !all_in(unoffered, other.unoffered)) return false;
  const bool asks_no_more_of_any =
      std::all_of(properties.begin(), properties.end(), [&](const PropertySchema& property) {
        const PropertySchema* twin = other.Find(property.name);
        const bool is_required = twin != nullptr && twin->is_required;
        return (is_required || !property.is_required) &&
               asks_no_more(property.schemas,
                            twin == nullptr ? other.Other(property.name) : twin->schemas);
      });
  if (!asks_no_more_of_any) return false;
  // Every text of `other` has its keys in an order that is allowed here: undeclared names come
  // last.
  size_t last = 0;
  for (const PropertySchema& property : other.properties) {
    const PropertySchema* twin = Find(property.name);
    const size_t place =
        twin == nullptr ? properties.size() : static_cast<size_t>(twin - properties.data());
    if (place < last) return false;
    last = place;
  }
  if (!AllowsAllOthers()) {
    if (others != other.others) return false;
    for (const PropertySchema& property : other.properties) {
      if (!asks_no_more(SchemasOf(property.name), property.schemas)) return false;
    }
  }
  return true;
}

bool ArePlainlyApart(const ObjectSchema& a, const ObjectSchema& b) {
  const auto forbids = [](const ObjectSchema& one, const ObjectSchema& other) {
    return std::any_of(one.properties.begin(), one.properties.end(),
                       [&](const PropertySchema& property) {
                         return property.is_required &&
                                AreContrary(property.schemas, other.SchemasOf(property.name));
                       });
  };
  return forbids(a, b) || forbids(b, a);
}

absl::StatusOr<ObjectSchema> MergeObjects(const ObjectSchema& a, const ObjectSchema& b,
                                          DfaTable* dfas) {
  ObjectSchema merged;
  merged.properties.reserve(a.properties.size() + b.properties.size());
  const PropertyIndex in_a(a);
  const PropertyIndex in_b(b);
  const auto add = [&](const PropertySchema& property, const PropertyIndex& in_other,
                       const ObjectSchema& other) {
    const PropertySchema* twin = in_other.Find(property.name);
    merged.properties.push_back(
        {.name = property.name,
         .schemas = UniteSets(property.schemas,
                              twin != nullptr ? twin->schemas : other.Other(property.name)),
         .is_required = property.is_required || (twin != nullptr && twin->is_required),
         .has_place = property.has_place || (twin != nullptr && twin->has_place)});
  };
  for (const bool is_placed : {true, false}) {
    for (const PropertySchema& property : a.properties) {
      const bool is_in_b_order = !property.has_place && in_b.HasPlace(property.name);
      if (property.has_place == is_placed && !is_in_b_order) add(property, in_b, b);
    }
    for (const PropertySchema& property : b.properties) {
      if (property.has_place != is_placed || in_a.HasPlace(property.name)) continue;
      if (is_placed || in_a.Find(property.name) == nullptr) add(property, in_a, a);
    }
  }
  absl::StatusOr<List<NameClass>> others = MergeClasses(a.others, b.others, dfas);
  if (!others.ok()) return others.status();
  merged.others = *std::move(others);
  merged.min_properties = std::max(a.min_properties, b.min_properties);
  merged.max_properties = std::min(a.max_properties, b.max_properties);
  merged.needed = Join(a.needed, b.needed);
  merged.unoffered = Join(a.unoffered, b.unoffered);
  return merged;
}

absl::Status SplitNames(const SharedDfa& names, const SchemaSet& inside, const SchemaSet& outside,
                        DfaTable* dfas, List<NameClass>* classes) {
  absl::StatusOr<SharedDfa> other_names = dfas->Subtract(nullptr, names);
  if (!other_names.ok()) return other_names.status();
  List<NameClass> split;
  if (!names->IsEmpty()) split.push_back({names, inside});
  if (!(*other_names)->IsEmpty()) split.push_back({*std::move(other_names), outside});
  absl::StatusOr<List<NameClass>> merged = MergeClasses(*classes, split, dfas);
  if (!merged.ok()) return merged.status();
  *classes = *std::move(merged);
  return absl::OkStatus();
}

}  // namespace specd::grammar
