#include "tools/bench/output.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <chrono>

#include "absl/strings/str_replace.h"
#include "tools/toy_engine/json_string.h"

namespace specd::bench {

using Align = TextTable::Align;

// ---- Line

std::string Line::Quoted(std::string_view text) { return toy::QuoteJson(std::string(text)); }

Line& Line::Add(TextTable::Column column, std::string cell) {
  columns_.push_back(column);
  cells_.emplace_back(std::move(cell));
  return *this;
}

Line& Line::Name(std::string_view key, std::string_view text, size_t width) {
  return Add({key, Align::kLeft, width}, std::string(text)).Json(key, text);
}

Line& Line::Count(std::string_view key, int64_t number, size_t width) {
  return Add({key, Align::kRight, width}, fmt::format("{}", number)).Json(key, number);
}

Line& Line::Number(std::string_view title, size_t width, int digits, double number) {
  return Cell(title, width, "{:.{}f}", number, digits)
      .Json(absl::StrReplaceAll({title.data(), title.size()}, {{" ", "_"}}), number);
}

Line& Line::Spread(const Summary& summary, std::string_view unit, int digits) {
  const auto add = [&](std::string_view title, double value) {
    Cell(title, 9, "{:.{}f}", value, digits);
  };
  Name("unit", unit, 4);
  add("median", summary.median);
  add("p90", summary.p90);
  add("p99", summary.p99);
  add("max", summary.max);
  return Cell("samples", 8, "{}", summary.num_samples).Times("", summary);
}

Line& Line::Times(std::string_view prefix, const Summary& summary) {
  const auto add = [&](std::string_view name, auto value) {
    Json(fmt::format("{}{}", prefix, name), value);
  };
  add("median", summary.median);
  add("p10", summary.p10);
  add("p90", summary.p90);
  add("p99", summary.p99);
  add("max", summary.max);
  add("samples", summary.num_samples);
  return *this;
}

Line& Line::Target(const Goal& goal) {
  const TextTable::Column column{"target", Align::kLeft, 22};
  if (goal.bound == 0) return Add(column, "-");
  target_ = cells_.size();
  const std::string_view space = goal.unit.empty() ? "" : " ";
  const double missing =
      (goal.is_least ? goal.bound / goal.measured : goal.measured / goal.bound) - 1;
  Add(column,
      fmt::format("{} {:g}{}{} {}", goal.is_least ? ">=" : "<=", goal.bound, space, goal.unit,
                  goal.IsMet() ? "met" : fmt::format("missed by {:.0f} %", 100 * missing)));
  cells_.back().colour = goal.IsMet() ? Colour::kGreen : Colour::kRed;
  const std::string_view joint = goal.unit.empty() ? "" : "_";
  return Json(fmt::format("target{}{}", joint, goal.unit), goal.bound).Json("met", goal.IsMet());
}

Line& Line::Load(const ForeignLoad& load) {
  load_ = load;
  return Cell("load", 5, "{:.0f} %", 100 * (load.others + load.stolen))
      .Json("foreign_load", load.others)
      .Json("steal", load.stolen);
}

// ---- Output

Output::Output(Options options)
    : options_(std::move(options)),
      paint_(options_.format == Format::kTable && options_.out == stdout &&
             IsColourful(STDOUT_FILENO)) {}

void Output::PrintHead() {
  if (is_json() || std::exchange(has_head_, true)) return;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const std::string_view indent = options_.format == Format::kMarkdown ? "- " : "";
  fmt::print(options_.out, "{0}`{1}`, {2:%Y-%m-%d}\n{0}{3}\n\n", indent, options_.command,
             fmt::gmtime(now), machine_);
}

void Output::Caption(const std::string& text) {
  if (is_json() || text == caption_) return;
  caption_ = text;
  PrintHead();
  NextTable();
  fmt::print(options_.out, "{}\n\n", text);
}

void Output::NextTable() {
  if (table_ != nullptr) fmt::print(options_.out, "\n");
  table_.reset();
}

std::string Output::JsonOf(const Line& line) const {
  const std::string processor =
      processor_.empty() ? "" : fmt::format(",\"processor\":{}", toy::QuoteJson(processor_));
  return fmt::format("{{\"suite\":\"{}\"{}{}}}", options_.suite, line.members_, processor);
}

void Output::Print(const Line& line) {
  progress_.Clear();
  PrintHead();
  ++num_lines_;
  const bool is_disturbed = line.load_.has_value() && IsDisturbed(*line.load_);
  if (is_disturbed && num_disturbed_++ == 0) {
    fmt::print(stderr,
               "specd-bench: warning: the machine is not quiet: other processes took {:.0f} % of "
               "its CPUs and the hypervisor {:.0f} %\n",
               100 * line.load_->others, 100 * line.load_->stolen);
  }
  if (is_json()) {
    fmt::print(options_.out, "{}\n", JsonOf(line));
  } else if (!line.cells_.empty()) {
    if (table_ == nullptr) {
      num_columns_ = line.columns_.size();
      table_ = std::make_unique<TextTable>(line.columns_, paint_, options_.out,
                                           options_.format == Format::kMarkdown
                                               ? TextTable::Style::kMarkdown
                                               : TextTable::Style::kAligned);
    }
    std::vector<TextTable::Cell> cells = line.cells_;
    if (is_disturbed && line.target_.has_value()) cells[*line.target_] = "disturbed";
    cells.resize(num_columns_, "-");
    table_->Add(std::move(cells));
    table_->Flush();
  }
  std::fflush(options_.out);
}

void Output::End() {
  progress_.Clear();
  if (is_json()) return;
  for (const std::string& note : notes_) {
    fmt::print(options_.out, "{}{}\n", &note == &notes_.front() ? "\n" : "", note);
  }
  if (num_disturbed_ == 0) return;
  fmt::print(options_.out,
             "\n{} of {} measurements were disturbed: other processes took more than {:.0f} % of "
             "the CPUs, or the hypervisor more than {:.0f} %.\n",
             num_disturbed_, num_lines_, 100 * kOthersMax, 100 * kStolenMax);
}

}  // namespace specd::bench
