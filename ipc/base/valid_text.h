// ValidText makes UTF-8 of a text for errors and warnings that cross the wire.
//
// A message may quote bytes of a caller's, such as a name or a key. A reader that decodes strictly
// must still be able to read it. Each byte that is part of no code point becomes \xNN, as Python's
// backslashreplace has it. Pure function, safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace specd {

// At most size_max bytes: the text ends before the first code point that does not fit whole.
std::string ValidText(std::string_view text, size_t size_max = std::string_view::npos);

}  // namespace specd
