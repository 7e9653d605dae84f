#include "tools/bench/table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace specd::bench {

void Table::Begin(std::vector<Column> columns) {
  columns_ = std::move(columns);
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title);
  Print(titles);
  if (options_.format == ReportFormat::kMarkdown) {
    Print(std::vector<std::string>(titles.size(), "---"));
  }
}

void Table::Print(const std::vector<std::string>& cells) const {
  const bool markdown = options_.format == ReportFormat::kMarkdown;
  std::string line = markdown ? "|" : "";
  for (size_t i = 0; i < cells.size(); ++i) {
    if (markdown) {
      line += fmt::format(" {} |", cells[i]);
    } else if (i < num_left_) {
      line += fmt::format("{:<{}}  ", cells[i], columns_[i].width);
    } else {
      line += fmt::format("{:>{}}  ", cells[i], columns_[i].width);
    }
  }
  line.erase(line.find_last_not_of(' ') + 1);
  fmt::print(options_.out, "{}\n", line);
}

void PrintHead(const ReportOptions& options, const std::string& command,
               const std::string& machine) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const std::string_view indent = options.format == ReportFormat::kMarkdown ? "- " : "";
  fmt::print(options.out, "{}`{}`, {:%Y-%m-%d}\n", indent, command, fmt::gmtime(now));
  fmt::print(options.out, "{}{}\n\n", indent, machine);
}

}  // namespace specd::bench
