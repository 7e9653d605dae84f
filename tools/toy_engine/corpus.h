// ReadPassages reads the text that the toy model learns: the prose of text files or Markdown, cut
// into passages. corpus.txt beside this header is what it learns by default.
//
// A passage is a few neighbouring paragraphs or list items, one per line, without Markdown's marks.
// Code blocks, tables, headings and HTML comments are left out, because a model that has learned
// them writes them. The end of a passage teaches the model that a text may end there.
//
// Pure functions, except ReadPassages, which reads files. Safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace specd::toy {

// A paragraph is added to the passage before it until that passage has this many bytes. A terminal
// column shows about this much.
inline constexpr size_t kPassageSizeBytes = 320;

std::vector<std::string> PassagesOf(std::string_view markdown);

// The passages of all documents at the given paths. A path is a file, a folder, or a pattern such
// as "docs/*.md". A folder gives all *.md below it, except in hidden folders and build folders.
// Passages come in the order of the paths, and within a folder or pattern by name. The same
// documents therefore give the same model.
absl::StatusOr<std::vector<std::string>> ReadPassages(const std::vector<std::string>& paths);

}  // namespace specd::toy
