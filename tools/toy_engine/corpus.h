// The text that the toy model learns: the prose of Markdown documents, cut into passages.
//
// A passage is a few neighbouring paragraphs or list items, one per line, without Markdown's marks.
// Code blocks, tables, headings and HTML comments are left out, because a model that has learned
// them writes them. Where a passage ends the model learns that a text may end.
//
// Pure functions, except ReadPassages, which reads files. Safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace specd::toy {

// A paragraph is added to the passage before it until that has this many bytes: about what a
// terminal column shows.
inline constexpr size_t kPassageSizeBytes = 320;

std::vector<std::string> PassagesOf(std::string_view markdown);

// The passages of all documents at the given paths, each a file, a folder (all *.md below it, but
// for hidden folders and build folders) or a pattern such as "docs/*.md". In the order of the
// paths; within a folder or pattern by name, so that the same documents give the same model.
absl::StatusOr<std::vector<std::string>> ReadPassages(const std::vector<std::string>& paths);

}  // namespace specd::toy
