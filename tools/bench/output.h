// Output prints the lines of a suite as they are measured: an aligned table for people, Markdown
// for docs/BENCHMARKS.md, or one JSON object per line for programs. Line is one of them.
//
//   out.Begin("AMD EPYC", Describe(machine, 2));
//   out.Print(Line().Name("case", "greedy", 16).Cell("median us", 9, "{:.1f}", us).Load(load));
//   out.End();
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

#include "tools/bench/machine.h"
#include "tools/bench/timing.h"
#include "tools/terminal/terminal.h"
#include "tools/terminal/text_table.h"

namespace specd::bench {

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
  // "-" if `is_there` is false.
  Line& CellIf(bool is_there, std::string_view title, size_t width, const std::string& text) {
    return Cell(title, width, "{}", is_there ? text : "-");
  }
  // A column with its own title, and a member.
  template <class T>
  Line& Value(std::string_view title, std::string_view key, size_t width,
              fmt::format_string<const T&> format, const T& value) {
    return Cell(title, width, format, value).Json(key, value);
  }
  // Members alone.
  template <class T>
  Line& Json(std::string_view key, const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      members_ += fmt::format(",\"{}\":{:.4f}", key, value);
    } else if constexpr (std::is_arithmetic_v<T>) {
      members_ += fmt::format(",\"{}\":{}", key, value);
    } else {
      members_ += fmt::format(",\"{}\":{}", key, Quoted(value));
    }
    return *this;
  }
  // PREFIXmedian, PREFIXp10, PREFIXp90, PREFIXp99, PREFIXmax and PREFIXsamples.
  Line& Times(std::string_view prefix, const Summary& summary);
  // ratio, ratio_p99 and ratio_max to a base, with columns; without one, columns alone.
  Line& Ratios(const Summary& summary, const Summary* base);
  // The last column, and foreign_load and steal.
  Line& Load(const ForeignLoad& load);
  // The members alone, where lines share one load.
  Line& LoadOfAll(const ForeignLoad& load);

 private:
  friend class Output;
  static std::string Quoted(std::string_view text);
  Line& Add(TextTable::Column column, std::string cell);

  std::vector<TextTable::Column> columns_;
  std::vector<TextTable::Cell> cells_;
  std::string members_;
  std::optional<ForeignLoad> load_;
};

// A measurement that the design has a target for.
struct Goal {
  std::string name;
  std::string dtype;
  std::string measured;
  std::string target;
  bool is_met = false;
  bool is_disturbed = false;
  double missing = 0;  // the share by which it is missed
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
  explicit Output(Options options);

  bool is_json() const { return options_.format == Format::kJson; }

  // Prints the command, the date and the machine. In JSON it prints nothing, because each line has
  // the processor; an empty one is left out.
  void Begin(std::string processor, const std::string& machine);
  // Begins another table under this text, if it differs from the one before.
  void Caption(const std::string& text);
  // Begins another table without one.
  void NextTable();
  void Show(std::string_view progress) { progress_.Show(progress); }
  void Print(const Line& line);
  void Take(Goal goal) { goals_.push_back(std::move(goal)); }
  // A goal that is met at `most` and below.
  void TakeAtMost(std::string name, double measured, double most, std::string_view unit,
                  const ForeignLoad& load) {
    goals_.push_back({.name = std::move(name),
                      .dtype = "",
                      .measured = fmt::format("{:.1f} {}", measured, unit),
                      .target = fmt::format("<= {:.0f} {}", most, unit),
                      .is_met = measured <= most,
                      .is_disturbed = IsDisturbed(load),
                      .missing = measured / most - 1});
  }
  // A sentence below the tables.
  void Note(std::string text) { notes_.push_back(std::move(text)); }
  // Prints goals, notes, and how many measurements were disturbed.
  void End();

  // The line as JSON, without its newline.
  std::string JsonOf(const Line& line) const;

 private:
  void PrintGoals();
  std::unique_ptr<TextTable> NewTable(std::vector<TextTable::Column> columns) const;

  const Options options_;
  const Paint paint_;
  Progress progress_;
  std::string processor_;
  std::string caption_;
  std::unique_ptr<TextTable> table_;
  size_t num_columns_ = 0;
  std::vector<Goal> goals_;
  std::vector<std::string> notes_;
  int64_t num_lines_ = 0;
  int64_t num_disturbed_ = 0;
};

}  // namespace specd::bench
