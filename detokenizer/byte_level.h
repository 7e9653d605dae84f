// The byte map of GPT-2: how byte-level vocabularies write arbitrary bytes as printable text.
//
// Used by loaders only, once per token. Pure function, safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace specd {

// The bytes behind a token as it stands in the vocabulary file ("Ġthere" -> " there"). A token with
// any character that is not one of the map's 256 is taken whole as its own UTF-8 ("[PA D]"): it was
// put there as text. REQUIRES: token is valid UTF-8.
std::string ByteLevelBytes(std::string_view token);

}  // namespace specd
