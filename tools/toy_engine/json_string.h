// QuoteJson writes a string as JSON, for the one-line outputs of the toy engine and the toy client.
//
// simdjson only reads. Pure function, safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace specd::toy {

// The text with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string QuoteJson(std::string_view text);

}  // namespace specd::toy
