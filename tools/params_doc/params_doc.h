// ParamsDoc makes the text of docs/PARAMETERS.md from the parameter table, the rules over it and
// the presets.
//
// specd-params prints the text, and a test of the suite `style` compares it with the file. Pure
// function.
#pragma once

#include <string>

namespace specd {

std::string ParamsDoc();

}  // namespace specd
