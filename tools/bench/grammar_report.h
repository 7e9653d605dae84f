// GrammarReport prints the measurements of GrammarSuite: a table, Markdown, or JSON lines.
//
// Not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/grammar_suite.h"
#include "tools/bench/machine.h"
#include "tools/bench/table.h"

namespace specd::bench {

class GrammarReport {
 public:
  GrammarReport(const ReportOptions& options, const Machine& machine)
      : options_(options), machine_(machine), table_(options, 2) {}

  // In JSON it prints nothing, because each line carries the processor.
  void PrintHead(const std::string& command, const std::string& machine) const;
  void Print(const GrammarMeasurement& measurement);
  // Prints the targets, and warns if the machine was not quiet.
  void PrintEnd() const;

 private:
  ReportOptions options_;
  Machine machine_;
  Table table_;
  std::vector<GrammarMeasurement> printed_;
};

// One line, without its newline.
std::string ToJson(const GrammarMeasurement& measurement, const Machine& machine);

}  // namespace specd::bench
