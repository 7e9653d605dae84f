// PrintOpenings prints the measurements of OpeningSuite in the formats of Report.
//
// A function; not thread-safe.
#pragma once

#include <span>
#include <string>

#include "tools/bench/opening_suite.h"
#include "tools/bench/report.h"

namespace specd::bench {

void PrintOpenings(std::span<const OpeningMeasurement> measurements, const ReportOptions& options,
                   const Machine& machine);

// One line, without its newline.
std::string ToJson(const OpeningMeasurement& measurement, const Machine& machine);

}  // namespace specd::bench
