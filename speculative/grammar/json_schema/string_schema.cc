#include "speculative/grammar/json_schema/string_schema.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"
#include "speculative/grammar/automata/dfa_minimizer.h"
#include "speculative/grammar/automata/dfa_operations.h"
#include "speculative/grammar/automata/word_dfa.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/json_schema/dfa_table.h"
#include "speculative/grammar/rules/counted_dfa.h"

namespace specd::grammar {
namespace {

// Strings of valid UTF-8 are counted by the bytes that begin a character.
size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

bool StringSchema::Allows(std::string_view value, bool with_formats) const {
  const size_t length = CountCharacters(value);
  if (length < min_length || (max_length != kUnbounded && length > max_length)) return false;
  if (values != nullptr && !values->Accepts(value)) return false;
  return !with_formats || std::all_of(formats.begin(), formats.end(), [&](const SharedDfa& format) {
    return format->Accepts(value);
  });
}

absl::StatusOr<StringSchema> MergeStrings(const StringSchema& a, const StringSchema& b,
                                          DfaTable* dfas) {
  StringSchema merged = a;
  merged.min_length = std::max(a.min_length, b.min_length);
  merged.max_length = std::min(a.max_length, b.max_length);
  for (const SharedDfa& format : b.formats) {
    if (std::find(merged.formats.begin(), merged.formats.end(), format) == merged.formats.end()) {
      merged.formats.push_back(format);
    }
  }
  absl::StatusOr<SharedDfa> both = dfas->Intersect(a.values, b.values);
  if (!both.ok()) return both.status();
  merged.values = *std::move(both);
  return merged;
}

absl::StatusOr<List<StringSchema>> ForbiddenStrings(const StringSchema& schema, DfaTable* dfas) {
  SPECD_CHECK(schema.formats.empty());
  List<StringSchema> forbidden;
  if (schema.min_length > 0) forbidden.push_back({.max_length = schema.min_length - 1});
  if (schema.max_length != kUnbounded) forbidden.push_back({.min_length = schema.max_length + 1});
  if (schema.values != nullptr) {
    absl::StatusOr<SharedDfa> others = dfas->Subtract(nullptr, schema.values);
    if (!others.ok()) return others.status();
    forbidden.push_back({.values = *std::move(others)});
  }
  return forbidden;
}

absl::StatusOr<ByteDfa> StringAutomaton(const StringSchema& schema) {
  if (schema.IsEmpty()) return ByteDfa();
  List<SharedDfa> automata = schema.formats;
  if (schema.values != nullptr) automata.push_back(schema.values);
  absl::StatusOr<ByteDfa> dfa = automata.empty() ? AllStrings() : *automata[0];
  for (size_t i = 1; i < automata.size() && dfa.ok(); ++i) dfa = Intersect(*dfa, *automata[i]);
  const bool has_length = schema.min_length > 0 || schema.max_length != kUnbounded;
  if (!dfa.ok() || !has_length) return dfa;
  return CountCharacters(*dfa, {.min = schema.min_length, .max = schema.max_length});
}

absl::StatusOr<ExprId> StringWriter::Write(const StringSchema& schema) {
  if (schema.IsUnconstrained()) return text_.String();
  if (schema.values == nullptr && schema.formats.empty()) {
    return text_.String(schema.min_length, schema.max_length);
  }
  List<SharedDfa> automata = schema.formats;
  automata.push_back(schema.values);
  auto key = std::pair(std::move(automata), std::pair(schema.min_length, schema.max_length));
  if (const auto known = written_.find(key); known != written_.end()) return known->second;
  absl::StatusOr<ByteDfa> dfa = StringAutomaton(schema);
  if (!dfa.ok()) return dfa.status();
  return written_[std::move(key)] = text_.String(*dfa);
}

absl::StatusOr<ByteDfa> TheseStrings(const List<std::string_view>& strings) {
  const absl::StatusOr<ByteDfa> words = BuildWordDfa(strings);
  return words.ok() ? MinimizeWithinLimits(*words) : words.status();
}

}  // namespace specd::grammar
