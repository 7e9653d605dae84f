// TextError makes the Status of a wrong place in a grammar's text, with the line and a caret.
//
//   return TextError(absl::StatusCode::kInvalidArgument, "grammar", text, offset,
//                    "a repetition has nothing before it; put an item there");
//   // grammar, line 3, column 9: a repetition has nothing before it; put an item there
//   //   root ::= * "a"
//   //            ^
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"

namespace specd::grammar {

// A column counts characters from 1. A long line is cut around the caret. REQUIRES: text is valid
// UTF-8 up to the end of the line, and offset <= text.size().
absl::Status TextError(absl::StatusCode code, std::string_view what, std::string_view text,
                       size_t offset, std::string_view message);

}  // namespace specd::grammar
