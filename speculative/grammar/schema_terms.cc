#include "speculative/grammar/schema_terms.h"

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
