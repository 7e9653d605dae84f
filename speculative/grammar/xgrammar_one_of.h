// AreDisjoint tells whether no JSON value can fit two branches of oneOf, for FindUnenforced.
//
// It looks at types and constants only, and says no where it cannot tell.
#pragma once

#include <simdjson.h>

namespace specd::grammar {

// The types that a schema admits, by its keywords type, const and enum. A number that is no integer
// is a type of its own, so that integer and number overlap.
struct JsonTypes {
  enum : unsigned {
    kNull = 1,
    kBoolean = 2,
    kInteger = 4,
    kFraction = 8,
    kString = 16,
    kArray = 32,
    kObject = 64,
    kAll = 127,
  };
  unsigned bits = kAll;

  bool Has(unsigned type) const { return (bits & type) != 0; }
};

// The type of a value.
JsonTypes TypesOfValue(const simdjson::dom::element& value);
// The types that the keyword `type` admits: all, if the schema has none.
JsonTypes TypesOfKeyword(const simdjson::dom::object& schema);

// True if types, constants, or the constants of one required property tell the two apart. The
// library enforces oneOf for such branches only; for others it enforces anyOf.
bool AreDisjoint(const simdjson::dom::element& a, const simdjson::dom::element& b);

}  // namespace specd::grammar
