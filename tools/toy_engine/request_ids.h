// Names for the streams of the toy engine's prompts, under which subscribers find them.
//
// Pure function, safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace specd::toy {

// The prompt itself, within specd's limits: at most 128 bytes of UTF-8, a space for every control
// character and every byte that is not UTF-8, and no name twice: the second "hello" becomes
// "hello (2)".
std::vector<std::string> MakeRequestIds(const std::vector<std::string>& prompts);

}  // namespace specd::toy
