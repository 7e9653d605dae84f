// PreTokenize splits text for BpeEncoder as GPT-2 does before byte-pair merges.
//
// A piece is a word, a number or a run of signs, each with the one space before it. Merges never
// cross a piece. A hand-written scanner implements the expression
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// because RE2 has no look-ahead. ASCII, white space and the scripts in common use are classified as
// Unicode classifies them. Every other character counts as a letter. If a tokenizer has learned
// merges in a script that the .cc file does not list, ids can differ; the text never does.
//
// Pure functions, safe from any thread.
#pragma once

#include <string_view>
#include <vector>

namespace specd::toy {

// The pieces in order; together they are the text. A byte outside valid UTF-8 counts as a sign of
// its own.
std::vector<std::string_view> PreTokenize(std::string_view text);

}  // namespace specd::toy
