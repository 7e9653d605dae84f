// MetricsDoc makes the text of docs/METRICS.md from the table of metrics.
//
// `specctl describe` prints the text, and a test of the suite `style` compares it with the file.
// Pure function.
#pragma once

#include <string>

namespace specd::ctl {

std::string MetricsDoc();

}  // namespace specd::ctl
