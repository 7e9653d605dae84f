// StringSchema holds what a schema asks of a string: a length, patterns, formats.
//
// Automata read the characters of a string, not its JSON spelling. A value type; automata are
// shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/json_schema/dfa_table.h"
#include "speculative/grammar/json_schema/json_text.h"

namespace specd::grammar {

struct StringSchema {
  uint32_t min_length = 0;
  uint32_t max_length = kUnbounded;
  SharedDfa values = {};  // null: all strings
  // A format's automaton may offer less than the format allows, and to some validators a format is
  // a remark only. So formats narrow what is offered, and never decide what is forbidden.
  List<SharedDfa> formats = {};

  bool IsUnconstrained() const {
    return min_length == 0 && max_length == kUnbounded && values == nullptr && formats.empty();
  }
  // True only if no string is allowed even without the formats.
  bool IsEmpty() const {
    return min_length > max_length || (values != nullptr && values->IsEmpty());
  }
  // Formats are looked at only `with_formats`.
  bool Allows(std::string_view value, bool with_formats) const;
};

// Errors are RESOURCE_EXHAUSTED: an automaton grows past its limit.
absl::StatusOr<StringSchema> MergeStrings(const StringSchema& a, const StringSchema& b,
                                          DfaTable* dfas);
// The strings that `schema` forbids. REQUIRES: no formats.
absl::StatusOr<List<StringSchema>> ForbiddenStrings(const StringSchema& schema, DfaTable* dfas);
// All of it as one automaton, formats too.
absl::StatusOr<ByteDfa> StringAutomaton(const StringSchema& schema);

// Writes the strings of schemas, equal ones once.
class StringWriter {
 public:
  explicit StringWriter(JsonText* text) : text_(*text) {}
  absl::StatusOr<ExprId> Write(const StringSchema& schema);

 private:
  JsonText& text_;
  // By the automata and the lengths.
  HashMap<std::pair<List<SharedDfa>, std::pair<uint32_t, uint32_t>>, ExprId> written_;
};

// The automaton of these strings alone.
absl::StatusOr<ByteDfa> TheseStrings(const List<std::string_view>& strings);

}  // namespace specd::grammar
