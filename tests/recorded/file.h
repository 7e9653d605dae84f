// ReadRecording and WriteRecording read and write a recording for the check and the recorder.
//
// The file has JSON lines: the engine first, then one line for each life. Both functions throw
// std::runtime_error that names the file and the line. An unknown field is an error, so no part of
// an input is overlooked. Thread-compatible.
#pragma once

#include <string>

#include "tests/recorded/life.h"

namespace specd::recorded {

Recording ReadRecording(const std::string& path);
void WriteRecording(const std::string& path, const Recording& recording);

}  // namespace specd::recorded
