// Splits text the way GPT-2 does before byte-pair merges: a word, a number or a run of signs, each
// with the one space before it; merges never cross such a piece.
//
// A hand-written scanner for the expression
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// because RE2 has no look-ahead. ASCII, white space and the scripts in common use are classified as
// Unicode does; of the rest every character counts as a letter. That can change ids only where a
// tokenizer has learned merges in a script that is not listed in the .cc file, and never the text.
//
// Pure functions, safe from any thread.
#pragma once

#include <string_view>
#include <vector>

namespace specd::toy {

// The pieces in order; together they are the text. A byte that is not part of valid UTF-8 counts as
// a sign of its own.
std::vector<std::string_view> PreTokenize(std::string_view text);

}  // namespace specd::toy
