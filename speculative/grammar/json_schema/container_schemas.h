// The shapes of arrays and objects that schemas allow, and how two of them merge.
//
// Values here are plain data. A SchemaSet holds the schemas of an item or a property. Merging joins
// sets and reads no schema.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/json_schema/schema_set.h"
#include "speculative/grammar/json_schema/string_schema.h"

namespace specd::grammar {

// A keyword that validators enforce and a grammar cannot. It is refused if anything is left that it
// would apply to.
struct UnofferedKeyword {
  const JsonValue* schema = nullptr;
  std::string_view keyword = {};

  friend bool operator==(const UnofferedKeyword&, const UnofferedKeyword&) = default;
};

// At least `min` and at most `max` items, from the position `from` on, satisfy `schemas`.
struct ContainedItems {
  SchemaSet schemas = {};
  uint32_t from = 0;
  uint32_t min = 1;
  uint32_t max = kUnbounded;

  friend bool operator==(const ContainedItems&, const ContainedItems&) = default;
};

struct ArraySchema {
  List<SchemaSet> prefix = {};  // of the first items
  SchemaSet rest = {};          // of each item after them
  uint32_t min_items = 0;
  uint32_t max_items = kUnbounded;
  List<ContainedItems> contained = {};
  List<UnofferedKeyword> unoffered = {};

  const SchemaSet& Item(size_t position) const {
    return position < prefix.size() ? prefix[position] : rest;
  }
  bool IsUnconstrained() const {
    return prefix.empty() && rest.empty() && min_items == 0 && max_items == kUnbounded &&
           contained.empty() && unoffered.empty();
  }
};

ArraySchema MergeArrays(const ArraySchema& a, const ArraySchema& b);

struct PropertySchema {
  std::string_view name;  // of the document
  SchemaSet schemas = {};
  bool is_required = false;
  // `properties` names it, so it has a place in the order. Others come after those.
  bool has_place = false;
};

// The names that an automaton accepts; null: all names.
struct NameClass {
  SharedDfa names = {};
  SchemaSet schemas = {};

  friend bool operator==(const NameClass&, const NameClass&) = default;
};

// At least one member has a name that `names` accepts, and a value that satisfies `schemas`.
struct NeededMember {
  SharedDfa names = {};
  SchemaSet schemas = {};

  friend bool operator==(const NeededMember&, const NeededMember&) = default;
};

struct ObjectSchema {
  List<PropertySchema> properties;  // in the order in which they are written
  // Classes of all other names. No name is in two of them, and each is in one.
  List<NameClass> others = {{}};
  uint32_t min_properties = 0;
  uint32_t max_properties = kUnbounded;
  List<NeededMember> needed = {};
  List<UnofferedKeyword> unoffered = {};

  const PropertySchema* Find(std::string_view name) const;
  // Returns the schemas for an undeclared `name`.
  const SchemaSet& Other(std::string_view name) const;
  // Adds to `name`, and declares it after the others if it is not.
  void Require(std::string_view name);
  void Constrain(std::string_view name, const SchemaSet& schemas);
  bool AllowsAllOthers() const;
  // What a value of a member called `name` must satisfy.
  const SchemaSet& SchemasOf(std::string_view name) const {
    const PropertySchema* property = Find(name);
    return property == nullptr ? Other(name) : property->schemas;
  }
  // True only if every object of `other` is allowed here, as one look at the lists shows.
  bool Includes(const ObjectSchema& other) const;
  bool IsUnconstrained() const {
    return properties.empty() && AllowsAllOthers() && min_properties == 0 &&
           max_properties == kUnbounded && needed.empty() && unoffered.empty();
  }

 private:
  PropertySchema& Declare(std::string_view name);
};

// Overlapping patterns multiply.
inline constexpr size_t kNameClassesMax = 64;

// No object is allowed by both, as one look at the required members shows.
bool ArePlainlyApart(const ObjectSchema& a, const ObjectSchema& b);

// RESOURCE_EXHAUSTED past kNameClassesMax, or if an automaton grows past its limit.
absl::StatusOr<ObjectSchema> MergeObjects(const ObjectSchema& a, const ObjectSchema& b,
                                          DfaTable* dfas);

// Names of `names` must satisfy `inside` too, and all others `outside`.
absl::Status SplitNames(const SharedDfa& names, const SchemaSet& inside, const SchemaSet& outside,
                        DfaTable* dfas, List<NameClass>* classes);

}  // namespace specd::grammar
