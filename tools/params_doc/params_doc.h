// The text of docs/PARAMETERS.md, made from the parameter table, the rules over it and the presets.
//
// A test of the suite `style` compares it with the file; specd-params prints it. Pure function.
#pragma once

#include <string>

namespace specd {

std::string ParamsDoc();

}  // namespace specd
