// Output prints the lines of a suite as they are measured: an aligned table for people, Markdown
// for docs/BENCHMARKS.md, or one JSON object per line for programs. Line is one of them.
//
//   out.Begin("AMD EPYC", "AMD EPYC; 2 usable CPUs");
//   out.Print(Line().Name("case", "greedy", 16).Cell("median us", 9, "{:.1f}", us).Load(load));
//
// Not thread-safe.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tools/bench/timing.h"
#include "tools/terminal/terminal.h"
#include "tools/terminal/text_table.h"
#include "tools/toy_engine/json_string.h"

namespace specd::bench {

// A measured number that the design bounds.
struct Goal {
  double measured = 0;
  double bound = 0;       // 0: none
  bool is_least = false;  // else the bound is the most
  std::string_view unit = "";

  bool IsMet() const { return is_least ? measured >= bound : measured <= bound; }
};

class Line {
 public:
  // A column of text and a member of the JSON object. Numbers are aligned to the right.
  Line& Name(std::string_view key, std::string_view text, size_t width);
  Line& Count(std::string_view key, int64_t number, size_t width);
  // A column alone.
  template <class... Args>
  Line& Cell(std::string_view title, size_t width, fmt::format_string<Args...> format,
             Args&&... args) {
    return Add({title, TextTable::Align::kRight, width},
               fmt::format(format, std::forward<Args>(args)...));
  }
  // A column of a number with so many digits, and a member: the title with `_` for each space.
  Line& Number(std::string_view title, size_t width, int digits, double number);
  // Members alone.
  template <class T>
  Line& Json(std::string_view key, const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      members_ += fmt::format(",\"{}\":{:.4f}", key, value);
    } else if constexpr (std::is_arithmetic_v<T>) {
      members_ += fmt::format(",\"{}\":{}", key, value);
    } else {
      members_ += fmt::format(",\"{}\":{}", key, toy::QuoteJson(value));
    }
    return *this;
  }
  // Columns of the spread, with so many digits, and what Times adds.
  Line& Spread(const Summary& summary, std::string_view unit, int digits = 1);
  // PREFIXmedian, PREFIXp10, PREFIXp90, PREFIXp99, PREFIXmax and PREFIXsamples.
  Line& Times(std::string_view prefix, const Summary& summary);
  // The column `target`, with "met" or the share by which the goal is missed; target and met. In a
  // table the cell is "disturbed" if the machine was not quiet.
  Line& Target(const Goal& goal);
  // The last column, and foreign_load and steal.
  Line& Load(const ForeignLoad& load);

 private:
  friend class Output;
  Line& Add(TextTable::Column column, std::string cell);

  std::vector<TextTable::Column> columns_;
  std::vector<TextTable::Cell> cells_;
  std::string members_;
  std::optional<ForeignLoad> load_;
  size_t target_ = 0;  // its cell, if it has one; never the first
};

enum class Format { kTable, kMarkdown, kJson };

class Output {
 public:
  struct Options {
    std::string suite;
    std::string command;  // the command line
    Format format = Format::kTable;
    std::FILE* out = stdout;
  };
  explicit Output(Options options) : options_(std::move(options)) {}

  bool is_json() const { return options_.format == Format::kJson; }

  // What was measured. Its text, the command and the date come before the first table, but not in
  // JSON, where each line has the processor.
  void Begin(std::string processor, std::string machine) {
    processor_ = std::move(processor);
    machine_ = std::move(machine);
  }
  // Begins another table under this text, if it differs from the one before.
  void Caption(const std::string& text);
  // Begins another table without one.
  void NextTable();
  void Show(std::string_view progress) { progress_.Show(progress); }
  void Print(const Line& line);

  // The line as JSON, without its newline.
  std::string JsonOf(const Line& line) const;

 private:
  void PrintHead();

  const Options options_;
  Progress progress_;
  std::string processor_;
  std::string machine_;
  bool has_head_ = false;
  std::string caption_;
  std::unique_ptr<TextTable> table_;
  bool was_disturbed_ = false;
};

}  // namespace specd::bench
