#include "speculative/grammar/json_schema/schema_set.h"

#include <algorithm>
#include <iterator>

namespace specd::grammar {

const JsonValue& NothingSchema() {
  static const JsonValue* const kNothing =
      new JsonValue{.type = JsonType::kBoolean, .boolean = false, .index = ~uint32_t{0}};
  return *kNothing;
}

SchemaSet NothingSet() { return {{&NothingSchema()}}; }

SchemaSet SetOf(const SchemaTerm& term) {
  const JsonValue& schema = *term.schema;
  const bool is_everything = schema.IsBoolean(true) || (schema.IsObject() && schema.names.empty());
  if (is_everything) return term.is_negated ? NothingSet() : SchemaSet();
  if (schema.IsBoolean(false)) return term.is_negated ? SchemaSet() : NothingSet();
  return {term};
}

bool IsNothing(const SchemaSet& set) {
  return set.size() == 1 && set[0].schema == &NothingSchema();
}

List<SchemaSet> Opposites(const SchemaSet& set) {
  if (IsNothing(set)) return {SchemaSet()};
  List<SchemaSet> opposites;
  for (const SchemaTerm& term : set) opposites.push_back(SetOf({term.schema, !term.is_negated}));
  return opposites;
}

bool AreContrary(const SchemaSet& a, const SchemaSet& b) {
  if (IsNothing(a) || IsNothing(b)) return true;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (x->schema->index < y->schema->index) {
      ++x;
    } else if (y->schema->index < x->schema->index) {
      ++y;
    } else if (x->is_negated != y->is_negated) {
      return true;
    } else {
      ++x;
      ++y;
    }
  }
  return false;
}

SchemaSet UniteSets(const SchemaSet& a, const SchemaSet& b) {
  if (IsNothing(a) || IsNothing(b)) return NothingSet();
  SchemaSet united;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(united));
  // Opposites stand side by side, because a term's place comes first in the order.
  const auto opposites = std::adjacent_find(
      united.begin(), united.end(),
      [](const SchemaTerm& x, const SchemaTerm& y) { return x.schema == y.schema; });
  return opposites == united.end() ? united : NothingSet();
}

}  // namespace specd::grammar
