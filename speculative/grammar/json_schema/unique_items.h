// FiniteItems lists the values that the items of an array can have, if they are few: what
// `uniqueItems` needs.
//
// Each value has one text, as JsonText writes constants: 1 and 1.0 are one value, and a string is
// told apart by its characters and not by its escapes.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/json_schema/schema_evaluator.h"
#include "speculative/grammar/json_schema/schema_set.h"

namespace specd::grammar {

// The texts of the scalars that satisfy `set`, each once. None: there are more than kSetKeysMax, or
// an array or an object is among them.
absl::StatusOr<std::optional<List<std::string>>> FiniteItems(const SchemaSet& set,
                                                             SchemaEvaluator* evaluator);

}  // namespace specd::grammar
