#include "tools/bench/output.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <chrono>

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

Line& Line::Times(std::string_view prefix, const Summary& summary) {
  for (const auto& [name, value] :
       std::initializer_list<std::pair<std::string_view, double>>{{"median", summary.median},
                                                                  {"p10", summary.p10},
                                                                  {"p90", summary.p90},
                                                                  {"p99", summary.p99},
                                                                  {"max", summary.max}}) {
    Json(fmt::format("{}{}", prefix, name), value);
  }
  return Json(fmt::format("{}samples", prefix), summary.num_samples);
}

Line& Line::Ratios(const Summary& summary, const Summary* base) {
  const auto add = [&](std::string_view title, std::string_view key, double Summary::*member) {
    const double ratio = base == nullptr ? 0 : summary.*member / base->*member;
    CellIf(base != nullptr, title, std::max<size_t>(title.size(), 6), fmt::format("{:.2f}", ratio));
    if (base != nullptr) Json(key, ratio);
  };
  add("ratio", "ratio", &Summary::median);
  add("ratio p99", "ratio_p99", &Summary::p99);
  add("ratio max", "ratio_max", &Summary::max);
  return *this;
}

Line& Line::Load(const ForeignLoad& load) {
  return Cell("load", 5, "{:.0f} %", 100 * (load.others + load.stolen)).LoadOfAll(load);
}

Line& Line::LoadOfAll(const ForeignLoad& load) {
  load_ = load;
  return Json("foreign_load", load.others).Json("steal", load.stolen);
}

// ---- Output

Output::Output(Options options)
    : options_(std::move(options)),
      paint_(options_.format == Format::kTable && options_.out == stdout &&
             IsColourful(STDOUT_FILENO)) {}

std::unique_ptr<TextTable> Output::NewTable(std::vector<TextTable::Column> columns) const {
  const bool is_markdown = options_.format == Format::kMarkdown;
  return std::make_unique<TextTable>(
      std::move(columns), paint_, options_.out,
      is_markdown ? TextTable::Style::kMarkdown : TextTable::Style::kAligned);
}

void Output::Begin(std::string processor, const std::string& machine) {
  processor_ = std::move(processor);
  if (is_json()) return;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const std::string_view indent = options_.format == Format::kMarkdown ? "- " : "";
  fmt::print(options_.out, "{0}`{1}`, {2:%Y-%m-%d}\n{0}{3}\n\n", indent, options_.command,
             fmt::gmtime(now), machine);
}

void Output::Caption(const std::string& text) {
  if (is_json() || text == caption_) return;
  caption_ = text;
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
  ++num_lines_;
  if (line.load_.has_value() && IsDisturbed(*line.load_) && num_disturbed_++ == 0) {
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
      table_ = NewTable(line.columns_);
    }
    std::vector<TextTable::Cell> cells = line.cells_;
    cells.resize(num_columns_, "-");
    table_->Add(std::move(cells));
    table_->Flush();
  }
  std::fflush(options_.out);
}

void Output::PrintGoals() {
  if (goals_.empty()) return;
  fmt::print(options_.out, "\n");
  const auto table = NewTable({{"case", Align::kLeft, 16},
                               {"dtype", Align::kLeft, 5},
                               {"measured", Align::kRight, 9},
                               {"target", Align::kLeft, 11},
                               {"", Align::kLeft}});
  for (const Goal& goal : goals_) {
    table->Add({goal.name, goal.dtype, goal.measured, goal.target,
                goal.is_disturbed ? TextTable::Cell("disturbed: measure again")
                : goal.is_met
                    ? TextTable::Cell("met", Colour::kGreen)
                    : TextTable::Cell(fmt::format("missed by {:.0f} %", 100 * goal.missing),
                                      Colour::kRed)});
  }
}

void Output::End() {
  progress_.Clear();
  if (is_json()) return;
  PrintGoals();
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
