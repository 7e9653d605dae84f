// BuildStructuralTag turns a structural tag into a constraint, for kind kStructuralTag: free text
// with tags whose content is constrained.
//
// The older form of vLLM, SGLang and xgrammar: {"type": "structural_tag", "structures": [{"begin",
// "schema", "end"}, ...], "triggers": [...]}. The newer form is {"type": "structural_tag",
// "format": ...}, with the formats of TagFormatKind (tag_format.h).
//
// Free text is any valid UTF-8. A reader scans it and stops at the first string that ends it: a
// trigger, which is the start of a tag, or the end of the tag around the text. After a tag the scan
// begins anew. No excluded string may be in the scanned text. Free text without an end may only
// come last. Pure function, for any thread.
//
//   absl::StatusOr<ExprId> root = BuildStructuralTag(json, options, &rules, &warnings);
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

struct StructuralTagOptions {
  // A front end for a part of the text.
  using PartBuilder = std::function<absl::StatusOr<ExprId>(
      std::string_view text, GrammarRules* rules, std::vector<std::string>* warnings)>;

  // Without a builder, its format is refused.
  PartBuilder build_schema;
  PartBuilder build_schema_in_any_order = {};  // of keys
  PartBuilder build_regex;
};

// InvalidArgument: wrong, with the JSON pointer. Unimplemented: right, but specd cannot enforce it.
// ResourceExhausted: past a limit. A part's own error and warnings follow the pointer to the part.
absl::StatusOr<ExprId> BuildStructuralTag(std::string_view json,
                                          const StructuralTagOptions& options, GrammarRules* rules,
                                          std::vector<std::string>* warnings);

}  // namespace specd::grammar
