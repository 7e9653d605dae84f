// CheckOutputs refuses a file to write that would overwrite a file that the command reads: a trace,
// or the row file of one.
//
// Two names of one file count as one. A trace that cannot be read is no error here: the command
// says so when it reads it. Pure function of the file system.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"

namespace specd::replay {

// The file that -o names, and the row file that is written beside it; empty: none.
struct OutputPaths {
  std::string file;
  std::string rows;
};

// `inputs` are trace files. INVALID_ARGUMENT names the file that would be lost.
absl::Status CheckOutputs(std::span<const std::string> inputs, const OutputPaths& outputs);

}  // namespace specd::replay
