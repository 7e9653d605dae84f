// ByteLevelBytes reverses the byte map of GPT-2 for loaders. Byte-level vocabularies use that map
// to write arbitrary bytes as printable text.
//
// A loader calls it once for each token. Pure function, safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace specd {

// Returns the bytes of a token as the vocabulary file writes it ("Ġthere" -> " there"). A token
// that was added as text may have a character that is not one of the map's 256. Such a token is
// taken whole as its own UTF-8 ("[PA D]"). REQUIRES: token is valid UTF-8.
std::string ByteLevelBytes(std::string_view token);

}  // namespace specd
