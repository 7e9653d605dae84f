#include "speculative/grammar/schema_form.h"

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

SchemaForm AnythingForm() {
  SchemaForm form;
  for (const JsonType type : kJsonTypes) form.alternatives.push_back({.type = type});
  return form;
}

}  // namespace specd::grammar
