// Presets lists combinations of parameters to begin with, by the kind of text. docs/PARAMETERS.md
// prints them, and a test checks each with ValidateParams. Constant data.
#pragma once

#include <span>
#include <string_view>

#include "speculative/params/params.h"

namespace specd {

struct Preset {
  std::string_view use;
  SequenceParams (*make)();  // other parameters stay at their defaults
  std::string_view why;
};

std::span<const Preset> Presets();

}  // namespace specd
