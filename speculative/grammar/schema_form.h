// SchemaForm holds the meaning of a schema as alternatives of one type each. A value that satisfies
// one alternative satisfies the schema.
//
// Keywords of a schema apply to values of one type, so a conjunction is done type by type, and
// anyOf is a longer list. Alternatives may overlap. Plain data.
#pragma once

#include "speculative/grammar/counted.h"
#include "speculative/grammar/json_value.h"
#include "speculative/grammar/schema_numbers.h"
#include "speculative/grammar/schema_shapes.h"
#include "speculative/grammar/schema_strings.h"

namespace specd::grammar {

struct SchemaAlternative {
  JsonType type = JsonType::kNull;
  // The only value, if it is not null; nothing below constrains it further.
  const JsonValue* constant = nullptr;
  // A format, which only narrows what is offered, does not allow the constant.
  bool is_constant_unoffered = false;

  bool allows_true = true;  // a boolean
  bool allows_false = true;
  NumberSchema number = {};
  StringSchema string = {};
  ArraySchema array = {};
  ObjectSchema object = {};

  // Every value of the type is allowed.
  bool IsUnconstrained() const;
  // True only if every value of `other` is allowed here, as one look at the lists shows.
  bool Includes(const SchemaAlternative& other) const;
};

struct SchemaForm {
  List<SchemaAlternative> alternatives = {};
  // Nothing was dropped from it, so its complement is exact too.
  bool is_exact = true;

  // Drops alternatives whose values others allow, so that branches which include each other do not
  // multiply.
  void Absorb();
};

inline constexpr JsonType kJsonTypes[] = {JsonType::kNull,   JsonType::kBoolean, JsonType::kNumber,
                                          JsonType::kString, JsonType::kArray,   JsonType::kObject};

// Any value at all.
SchemaForm AnythingForm();

}  // namespace specd::grammar
