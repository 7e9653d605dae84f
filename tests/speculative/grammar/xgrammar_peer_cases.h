// Constraints that specd's own engine and xgrammar both take, and the places where the two differ.
//
// xgrammar_peer_test.cc compares the masks of both. A token that one engine alone allows is
// explained if the text that ends with this token matches an entry of kPeerDifferences. `<eos>` in
// such a text is the end. Each entry says why the two differ there.
#pragma once

#include <string_view>

#include "speculative/grammar/grammar_backend.h"

namespace specd::grammar {

struct PeerCase {
  std::string_view name;
  GrammarKind kind;
  std::string_view text;
  Whitespace whitespace = Whitespace::kCompact;
};

inline constexpr PeerCase kPeerCases[] = {
    {"regex_date", GrammarKind::kRegex, "[0-9]{4}-[0-9]{2}-[0-9]{2}"},
    {"regex_words", GrammarKind::kRegex, "(foo|bar|baz)( (foo|bar|baz)){0,3}"},
    {"regex_negated", GrammarKind::kRegex, "[^a-c\\n]{2,6}"},
    {"regex_unicode", GrammarKind::kRegex, "[α-ωé漢]{1,4}"},
    {"regex_shared_prefixes", GrammarKind::kRegex, "(ab|abc|abcabc|b)*c?"},
    {"regex_nested", GrammarKind::kRegex, "((a|b){2,3}c){1,4}"},
    {"regex_optional", GrammarKind::kRegex, "(https?://)?[a-z]+(\\.[a-z]+)+(/[a-z0-9]*)*"},
    {"regex_counted", GrammarKind::kRegex, "(aa){3}|a{5,7}|a?"},
    {"regex_quoted", GrammarKind::kRegex, R"re("([^"\\]|\\.)*")re"},
    {"regex_dot", GrammarKind::kRegex, "a.b.{1,2}c"},
    {"regex_escapes", GrammarKind::kRegex, R"(\d{2}:\d{2}\s\w+)"},

    {"ebnf_nesting", GrammarKind::kEbnf, R"g(root ::= "a" root "b" | "c")g"},
    {"ebnf_list", GrammarKind::kEbnf,
     R"g(root ::= "[" (item ("," item)*)? "]"
item ::= [0-9] | root)g"},
    {"ebnf_sum", GrammarKind::kEbnf,
     R"g(root ::= term ("+" term)*
term ::= factor ("*" factor)*
factor ::= [0-9]+ | "(" root ")")g"},
    {"ebnf_left_recursion", GrammarKind::kEbnf,
     R"g(root ::= root "," item | item
item ::= "ab" | "ba")g"},
    {"ebnf_ambiguous", GrammarKind::kEbnf,
     R"g(root ::= e
e ::= e "+" e | "1" | "(" e ")")g"},
    {"ebnf_palindrome", GrammarKind::kEbnf, R"g(root ::= "a" root "a" | "b" root "b" | "x")g"},
    {"ebnf_optional_parts", GrammarKind::kEbnf, R"g(root ::= "x"? "y"{0,3} "z"+)g"},
    {"ebnf_escapes", GrammarKind::kEbnf, R"g(root ::= "\xe9" [^x] "\u6f22"* | "\t\"")g"},

    {"choice_words", GrammarKind::kChoice, R"(["yes","yes, no","no","漢字","\"}","a\nb"])"},
    {"choice_prefixes", GrammarKind::kChoice, R"(["a","ab","abc","abcabc","12","123"])"},

    {"json_integer", GrammarKind::kJsonSchema, R"({"type":"integer"})"},
    {"json_number", GrammarKind::kJsonSchema, R"({"type":"number"})"},
    {"json_string", GrammarKind::kJsonSchema, R"({"type":"string"})"},
    {"json_boolean_or_null", GrammarKind::kJsonSchema, R"({"type":["boolean","null"]})"},
    {"json_integer_bounds", GrammarKind::kJsonSchema,
     R"({"type":"integer","minimum":-12,"maximum":345})"},
    {"json_integer_minimum", GrammarKind::kJsonSchema, R"({"type":"integer","minimum":7})"},
    {"json_integer_exclusive", GrammarKind::kJsonSchema,
     R"({"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":1000})"},
    {"json_number_bounds", GrammarKind::kJsonSchema,
     R"({"type":"number","minimum":0,"maximum":1.5})"},
    {"json_multiple", GrammarKind::kJsonSchema,
     R"({"type":"integer","multipleOf":7,"minimum":0,"maximum":200})"},
    {"json_lengths", GrammarKind::kJsonSchema, R"({"type":"string","minLength":2,"maxLength":4})"},
    {"json_pattern", GrammarKind::kJsonSchema,
     R"({"type":"string","pattern":"^[a-z]{2,4}[0-9]+$"})"},
    {"json_pattern_unanchored", GrammarKind::kJsonSchema, R"({"type":"string","pattern":"ab"})"},
    {"json_enum", GrammarKind::kJsonSchema, R"({"enum":["red","green",1,12,null,true,"gr"]})"},
    {"json_const", GrammarKind::kJsonSchema, R"({"const":{"a":[1,"x"],"b":null}})"},
    {"json_record", GrammarKind::kJsonSchema,
     R"({"type":"object","properties":{"name":{"type":"string","maxLength":5},)"
     R"("age":{"type":"integer","minimum":0},"id":{"type":"boolean"}},)"
     R"("required":["name","age"],"additionalProperties":false})"},
    {"json_optional_members", GrammarKind::kJsonSchema,
     R"({"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"null"},)"
     R"("b":{"type":"boolean"}},"additionalProperties":false})"},
    {"json_additional", GrammarKind::kJsonSchema,
     R"({"type":"object","properties":{"a":{"type":"integer"}},)"
     R"("additionalProperties":{"type":"null"}})"},
    {"json_array", GrammarKind::kJsonSchema,
     R"({"type":"array","items":{"type":"integer","minimum":0,"maximum":99},)"
     R"("minItems":1,"maxItems":3})"},
    {"json_prefix", GrammarKind::kJsonSchema,
     R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"boolean"}],)"
     R"("items":{"type":"null"},"minItems":2})"},
    {"json_tree", GrammarKind::kJsonSchema,
     R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":)"
     R"({"v":{"type":"integer"},"left":{"$ref":"#/$defs/node"},"right":{"$ref":"#/$defs/node"}},)"
     R"("required":["v"],"additionalProperties":false}}})"},
    {"json_any_of", GrammarKind::kJsonSchema,
     R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"k":{"const":"x"}},)"
     R"("required":["k"],"additionalProperties":false},)"
     R"({"type":"array","items":{"type":"null"}}]})"},
    {"json_format_uuid", GrammarKind::kJsonSchema, R"({"type":"string","format":"uuid"})"},
    {"json_format_ipv4", GrammarKind::kJsonSchema, R"({"type":"string","format":"ipv4"})"},
    {"json_spaced_record", GrammarKind::kJsonSchema,
     R"({"type":"object","properties":{"a":{"type":"integer"},)"
     R"("b":{"type":"array","items":{"type":"null"}}},)"
     R"("required":["a","b"],"additionalProperties":false})",
     Whitespace::kFlexible},
    {"json_object", GrammarKind::kJsonObject, ""},
    {"json_spaced_object", GrammarKind::kJsonObject, "", Whitespace::kFlexible},

    {"tag_calls", GrammarKind::kStructuralTag,
     R"({"type":"structural_tag","triggers":["<f"],"structures":[{"begin":"<f=a>","schema":{"type":"object","properties":)"
     R"({"a":{"type":"integer"}},"required":["a"],"additionalProperties":false},"end":"</f>"},)"
     R"({"begin":"<f=b>","schema":{"enum":[1,"x"]},"end":"</f>"}]})"},
    {"tag_format", GrammarKind::kStructuralTag,
     R"({"type":"structural_tag","format":{"type":"sequence","elements":[)"
     R"({"type":"const_string","value":"ab"},{"type":"tag","begin":"<f=a>","content":)"
     R"({"type":"json_schema","json_schema":{"type":"integer"}},"end":"</f>"},)"
     R"({"type":"or","elements":[{"type":"regex","pattern":"1+"},)"
     R"({"type":"grammar","grammar":"root ::= \"c\""}]}]}})"},
};

// The engine that alone allows a token.
enum class PeerSide {
  kSpecd,
  kXgrammar,
  kUnmasked,  // specd, and xgrammar's matcher accepts it too: only xgrammar's mask forbids it
};

struct PeerDifference {
  std::string_view cases;  // a regular expression of names
  PeerSide only;
  std::string_view text;  // a regular expression of the text with the token
  std::string_view reason;
};

inline constexpr PeerDifference kPeerDifferences[] = {
    {"(ebnf|json|tag)_.*", PeerSide::kUnmasked, "[^]*",
     "xgrammar's mask leaves out some tokens that end one rule and go on in another, although its "
     "matcher accepts them."},
    {"(regex|ebnf|json|tag)_.*", PeerSide::kXgrammar, "[^]*\xED[\xA0-\xBF][\x80-\xBF]?",
     "These bytes are surrogates, which no UTF-8 has; a class of xgrammar has them."},
    {"tag_calls", PeerSide::kXgrammar, "[^]*[\x80-\xFF][^]*",
     "Free text is UTF-8 for specd and any bytes for xgrammar."},
    {"regex_(dot|quoted)", PeerSide::kXgrammar, "(a[^]{0,9}|[^]*\\\\)(\n|\r|\xE2\x80[\xA8\xA9]) *",
     "A dot of ECMA 262 is no line end; xgrammar's is any character."},
    {"regex_escapes", PeerSide::kSpecd, "[0-9]{2}:[0-9]{2}[\x80-\xFF]{1,3}",
     "\\s of ECMA 262 has the spaces of Unicode; xgrammar's has those of ASCII."},
    {"json_(lengths|record)", PeerSide::kXgrammar, "[^]*\"[^\"]*[\\x00-\\x1F]",
     "JSON forbids control characters in a string; xgrammar lets them pass where the schema says a "
     "length."},
    {"json_(lengths|record)", PeerSide::kSpecd, "[^]*\"[^\"\\\\]*\\\\([^]|u0?0?)?",
     "A character of a string may be an escape; xgrammar has none where the schema says a length."},
    {"(json|tag)_.*", PeerSide::kSpecd, "[^]*[0-9]\\.0{0,3}",
     "To JSON Schema 1.0 is an integer; xgrammar writes none with a point."},
    {"json_number_bounds", PeerSide::kSpecd, "[01]\\.[0-9]{7,}",
     "xgrammar writes at most six digits after the point of a number with bounds."},
    {"json_pattern_unanchored", PeerSide::kSpecd, "\"[^]*",
     "A pattern of the standard may be anywhere in the string; xgrammar wants the whole string."},
    {"json_additional", PeerSide::kXgrammar, "[^]*[{,]\"[^\"]*\\\\u[^]*",
     "Beside declared names specd writes every name without needless escapes, so that no escape "
     "hides a declared one."},
    {"json_format_ipv4", PeerSide::kXgrammar, "\"([0-9]{1,3}\\.){0,3}0[0-9][0-9.]{0,2}",
     "A part of a dotted quad has no leading zero."},
};

}  // namespace specd::grammar
