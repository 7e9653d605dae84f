// Table prints the lines of a table for the reports: aligned for people, or in Markdown.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace specd::bench {

enum class ReportFormat { kTable, kMarkdown, kJson };

struct ReportOptions {
  ReportFormat format = ReportFormat::kTable;
  bool colour = false;
  std::FILE* out = stdout;
};

class Table {
 public:
  struct Column {
    std::string_view title;
    size_t width;
  };

  // The first `num_left` columns hold text; numbers are aligned to the right.
  Table(const ReportOptions& options, size_t num_left) : options_(options), num_left_(num_left) {}

  // Prints the titles of a new table. REQUIRES: options.format is not kJson.
  void Begin(std::vector<Column> columns);
  // REQUIRES: one cell for each column.
  void Print(const std::vector<std::string>& cells) const;

 private:
  ReportOptions options_;
  size_t num_left_;
  std::vector<Column> columns_;
};

// Prints the command with today's date, and the machine.
void PrintHead(const ReportOptions& options, const std::string& command,
               const std::string& machine);

}  // namespace specd::bench
