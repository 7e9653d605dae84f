// Report prints measurements for the suites: an aligned table for people, Markdown for
// docs/BENCHMARKS.md, or one JSON object per line for programs.
//
// Each line is printed as soon as its measurement is made. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/bench/machine.h"
#include "tools/bench/measurement.h"
#include "tools/bench/table.h"

namespace specd::bench {

class Report {
 public:
  Report(const ReportOptions& options, const Machine& machine)
      : options_(options), machine_(machine), table_(options, kLeftColumns) {}

  // Prints the command, the machine and the time. In JSON it prints nothing, because each line
  // carries the processor.
  void PrintHead(const std::string& command, const std::string& machine);
  void Print(const Measurement& measurement);
  // Prints the table of targets for the measurements that have one, and the disturbances.
  void PrintEnd();

 private:
  static constexpr size_t kLeftColumns = 3;  // case, method and type

  void PrintTargets();
  void PrintDisturbed();

  ReportOptions options_;
  Machine machine_;
  Table table_;
  std::string section_;  // the caption of the table that is being printed
  std::vector<Measurement> printed_;
};

// One line, without its newline.
std::string ToJson(const Measurement& measurement, const Machine& machine);

}  // namespace specd::bench
