#include "tools/bench/output.h"

#include <fmt/chrono.h>

#include <chrono>

#include "absl/strings/str_replace.h"

namespace specd::bench {

using Align = TextTable::Align;

// ---- Line

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
  Name("unit", unit, 4);
  for (const auto& [title, value] :
       {std::pair("median", summary.median), std::pair("p90", summary.p90),
        std::pair("p99", summary.p99), std::pair("max", summary.max)}) {
    Cell(title, 9, "{:.{}f}", value, digits);
  }
  return Cell("samples", 8, "{}", summary.num_samples).Times("", summary);
}

Line& Line::Times(std::string_view prefix, const Summary& summary) {
  for (const auto& [name, value] : {std::pair("median", summary.median),
                                    std::pair("p10", summary.p10), std::pair("p90", summary.p90),
                                    std::pair("p99", summary.p99), std::pair("max", summary.max)}) {
    Json(fmt::format("{}{}", prefix, name), value);
  }
  return Json(fmt::format("{}samples", prefix), summary.num_samples);
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
  return fmt::format("{{\"suite\":\"{}\"{},\"processor\":{}}}", options_.suite, line.members_,
                     toy::QuoteJson(processor_));
}

void Output::Print(const Line& line) {
  progress_.Clear();
  PrintHead();
  const bool is_disturbed = line.load_.has_value() && IsDisturbed(*line.load_);
  if (is_disturbed && !std::exchange(was_disturbed_, true)) {
    fmt::print(stderr,
               "specd-bench: warning: the machine is not quiet: other processes took {:.0f} % of "
               "its CPUs and the hypervisor {:.0f} %\n",
               100 * line.load_->others, 100 * line.load_->stolen);
  }
  if (is_json()) {
    fmt::print(options_.out, "{}\n", JsonOf(line));
  } else {
    if (table_ == nullptr) {
      table_ = std::make_unique<TextTable>(line.columns_, Paint(), options_.out,
                                           options_.format == Format::kMarkdown
                                               ? TextTable::Style::kMarkdown
                                               : TextTable::Style::kAligned);
    }
    std::vector<TextTable::Cell> cells = line.cells_;
    if (is_disturbed && line.target_ > 0) cells[line.target_] = "disturbed";
    table_->Add(std::move(cells));
    table_->Flush();
  }
  std::fflush(options_.out);
}

}  // namespace specd::bench
