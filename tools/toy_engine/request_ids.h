// MakeRequestIds names the streams of the toy engine's prompts, so that subscribers can find them.
//
// Pure function, safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace specd::toy {

// A name is the prompt itself, within specd's limits: at most 128 bytes of UTF-8. Every control
// character and every byte outside UTF-8 becomes a space. No name is given twice: the second
// "hello" becomes "hello (2)".
std::vector<std::string> MakeRequestIds(const std::vector<std::string>& prompts);

}  // namespace specd::toy
