// Reads and writes a recording: JSON lines, the engine first and then one line for each life.
//
// Both throw std::runtime_error that names the file and the line. An unknown field is an error, so
// that nothing of an input is overlooked. Thread-compatible.
#pragma once

#include <string>

#include "tests/recorded/life.h"

namespace specd::recorded {

Recording ReadRecording(const std::string& path);
void WriteRecording(const std::string& path, const Recording& recording);

}  // namespace specd::recorded
