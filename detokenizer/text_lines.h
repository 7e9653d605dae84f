// TakeLine and QuoteBytes read text files line by line for the loaders of this folder.
//
// Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace specd {

// The first line of `text` without its end, which is taken from `text`.
std::string_view TakeLine(std::string_view* text);

// The beginning of a line that may be no UTF-8, for an error.
std::string QuoteBytes(std::string_view line);

}  // namespace specd
