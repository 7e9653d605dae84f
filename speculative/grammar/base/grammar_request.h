// GrammarRequest names a constraint: its kind, its text, and how a front end reads it.
//
// Plain values. GrammarCompiler compiles it (grammar_compiler.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace specd::grammar {

// Values are on the wire and in specd.h.
enum class GrammarKind : uint32_t {
  kNone = 0,
  kJsonSchema = 1,     // text is a JSON Schema
  kJsonObject = 2,     // any JSON object; no text
  kRegex = 3,          // text is a pattern that the whole output matches
  kEbnf = 4,           // text is a grammar in the dialect of GBNF and xgrammar; its root is `root`
  kChoice = 5,         // text is a JSON array of strings
  kStructuralTag = 6,  // text is a JSON object: tags (begin, schema, end) and triggers
};

// The order of the members that a JSON Schema declares. Values are on the wire and in specd.h.
enum class KeyOrder : uint32_t {
  kSchema = 0,  // that of the schema; others come after them
  kAny = 1,     // the model's; others may come between them
};

// Where JSON allows whitespace. Values are on the wire and in specd.h.
enum class Whitespace : uint32_t {
  kFlexible = 0,  // space, tab, newline and carriage return, at most kWhitespaceMax in a row
  kCompact = 1,   // none
};

// A model may emit whitespace for ever; a value that people read has less than this in one place.
inline constexpr uint32_t kWhitespaceMax = 64;

// The longest text of a constraint.
inline constexpr size_t kGrammarTextBytesMax = size_t{4} << 20;

struct GrammarRequest {
  GrammarKind kind = GrammarKind::kNone;
  std::string text;
  Whitespace whitespace = Whitespace::kFlexible;
  KeyOrder key_order = KeyOrder::kSchema;  // of a JSON Schema
  // Drop the parts of a schema that cannot be enforced, and name them in warnings(). Without it
  // such a schema is refused. Formats that the standard does not name are in warnings() either way.
  bool lenient = false;

  friend bool operator==(const GrammarRequest&, const GrammarRequest&) = default;
};

}  // namespace specd::grammar
