// TagFormat is what a structural tag says: a tree of formats, read from JSON and checked.
//
// ReadTagFormat reads both public forms. It checks what one format says by itself; how formats fit
// together is checked where they are built (structural_tag.h). Pure function, for any thread.
//
//   absl::StatusOr<TagFormat> root = ReadTagFormat(R"({"type": "structural_tag", "format":
//       {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}})");
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {

enum class TagFormatKind : uint8_t {
  kConstString,        // text
  kJsonSchema,         // text is the schema
  kGrammar,            // text is the grammar
  kRegex,              // text is the pattern
  kAnyText,            // without `excludes`
  kSequence,           // parts
  kOr,                 // parts
  kRepeat,             // parts[0], min to max times
  kTag,                // begin, parts[0], one of `ends`
  kTriggeredTags,      // parts are tags, in free text without `excludes`
  kTagsWithSeparator,  // parts are tags, text is between them
};

struct TagFormat {
  TagFormatKind kind = TagFormatKind::kConstString;
  std::string pointer = {};  // where it is in the JSON, or where its text is
  std::string text = {};
  std::string begin = {};
  std::vector<std::string> ends = {};
  std::vector<std::string> triggers = {};
  std::vector<std::string> excludes = {};
  bool any_order = false;  // of a schema's keys
  bool at_least_one = false;
  bool stop_after_first = false;
  uint32_t min = 0;
  uint32_t max = 0;  // kUnbounded: no bound
  List<TagFormat> parts = {};
};

inline constexpr size_t kStructuralTagSizeBytesMax = 4 << 20;
inline constexpr int kTagFormatDepthMax = 256;

// InvalidArgument: wrong, with the JSON pointer. Unimplemented: right, but specd cannot enforce it.
// ResourceExhausted: past a limit.
absl::StatusOr<TagFormat> ReadTagFormat(std::string_view json);

}  // namespace specd::grammar
