#include "speculative/grammar/schema_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "kernels/core/check.h"
#include "speculative/grammar/budget.h"
#include "speculative/grammar/counted.h"
#include "speculative/grammar/hash_tables.h"

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
absl::StatusOr<List<NameClass>> MergeClasses(const List<NameClass>& a, const List<NameClass>& b) {
  List<NameClass> merged;
  for (const NameClass& left : a) {
    for (const NameClass& right : b) {
      NameClass both = {left.names, UniteSets(left.schemas, right.schemas)};
      if (left.names == nullptr) {
        both.names = right.names;
      } else if (right.names != nullptr && right.names != left.names) {
        absl::StatusOr<ByteDfa> names = Intersect(*left.names, *right.names);
        if (!names.ok()) return names.status();
        if (names->IsEmpty()) continue;
        both.names = std::make_shared<const ByteDfa>(*std::move(names));
      }
      if (merged.size() == kNameClassesMax) {
        return absl::ResourceExhaustedError(fmt::format(
            "patternProperties and propertyNames make more than {} classes of names; use fewer "
            "overlapping patterns",
            kNameClassesMax));
      }
      merged.push_back(std::move(both));
    }
  }
  return merged;
}

using PropertyMap = HashMap<std::string_view, const PropertySchema*>;

PropertyMap IndexProperties(const ObjectSchema& schema) {
  PropertyMap map;
  for (const PropertySchema& property : schema.properties) map[property.name] = &property;
  return map;
}

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
  return properties.emplace_back(PropertySchema{.name = std::string(name), .schemas = Other(name)});
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
  return std::all_of(properties.begin(), properties.end(), [&](const PropertySchema& property) {
    const PropertySchema* twin = other.Find(property.name);
    const bool is_required = twin != nullptr && twin->is_required;
    return (is_required || !property.is_required) &&
           asks_no_more(property.schemas,
                        twin == nullptr ? other.Other(property.name) : twin->schemas);
  });
}

absl::StatusOr<ObjectSchema> MergeObjects(const ObjectSchema& a, const ObjectSchema& b) {
  ObjectSchema merged;
  const PropertyMap in_a = IndexProperties(a);
  const PropertyMap in_b = IndexProperties(b);
  const auto add = [&](const PropertySchema& property, const PropertyMap& in_other,
                       const ObjectSchema& other) {
    const auto twin = in_other.find(property.name);
    const bool is_twin = twin != in_other.end();
    merged.properties.push_back(
        {.name = property.name,
         .schemas = UniteSets(property.schemas,
                              is_twin ? twin->second->schemas : other.Other(property.name)),
         .is_required = property.is_required || (is_twin && twin->second->is_required),
         .has_place = property.has_place || (is_twin && twin->second->has_place)});
  };
  const auto has_place = [](const PropertyMap& map, const std::string& name) {
    const auto found = map.find(name);
    return found != map.end() && found->second->has_place;
  };
  for (const bool is_placed : {true, false}) {
    for (const PropertySchema& property : a.properties) {
      const bool is_in_b_order = !property.has_place && has_place(in_b, property.name);
      if (property.has_place == is_placed && !is_in_b_order) add(property, in_b, b);
    }
    for (const PropertySchema& property : b.properties) {
      if (property.has_place != is_placed || has_place(in_a, property.name)) continue;
      if (is_placed || !in_a.contains(property.name)) add(property, in_a, a);
    }
  }
  absl::StatusOr<List<NameClass>> others = MergeClasses(a.others, b.others);
  if (!others.ok()) return others.status();
  merged.others = *std::move(others);
  merged.min_properties = std::max(a.min_properties, b.min_properties);
  merged.max_properties = std::min(a.max_properties, b.max_properties);
  merged.needed = Join(a.needed, b.needed);
  merged.unoffered = Join(a.unoffered, b.unoffered);
  return merged;
}

absl::Status SplitNames(const SharedDfa& names, const SchemaSet& inside, const SchemaSet& outside,
                        List<NameClass>* classes) {
  absl::StatusOr<ByteDfa> all = AllStrings();
  if (!all.ok()) return all.status();
  absl::StatusOr<ByteDfa> other_names = Subtract(*all, *names);
  if (!other_names.ok()) return other_names.status();
  List<NameClass> split;
  if (!names->IsEmpty()) split.push_back({names, inside});
  if (!other_names->IsEmpty()) {
    split.push_back({std::make_shared<const ByteDfa>(*std::move(other_names)), outside});
  }
  absl::StatusOr<List<NameClass>> merged = MergeClasses(*classes, split);
  if (!merged.ok()) return merged.status();
  *classes = *std::move(merged);
  return absl::OkStatus();
}

}  // namespace specd::grammar
