// Combinations of parameters to begin with, by what is to be written: docs/PARAMETERS.md prints
// them, a test holds each against ValidateParams. Constant data.
#pragma once

#include <span>
#include <string_view>

#include "speculative/params.h"

namespace specd {

struct Preset {
  std::string_view use;
  SequenceParams (*make)();  // everything it does not set stays at its default
  std::string_view why;
};

std::span<const Preset> Presets();

}  // namespace specd
