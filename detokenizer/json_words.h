// Quote and Describe write a value of a tokenizer.json into an error: short, on one line.
//
// Used by the loaders of this folder. Pure functions, safe from any thread.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

namespace specd {

// Text of the file in quotes, cut after 60 bytes.
std::string Quote(std::string_view text);

// A string in quotes, a number, true, false or null as they are, "an object" or "an array".
std::string Describe(const simdjson::dom::element& value);

// Names the tokenizers that specd reads, and the remedy for every other.
extern const std::string_view kReadableTokenizers;

}  // namespace specd
