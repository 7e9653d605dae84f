#include "tools/bench/grammar_report.h"

#include <fmt/format.h>

#include "tools/bench/grammar_fill.h"
#include "tools/toy_engine/json_string.h"

namespace specd::bench {
namespace {

std::string Number(const GrammarMeasurement& m, double value) {
  return fmt::format("{:.{}f}", value, m.unit == "us" ? 2 : 0);
}

int32_t DraftOf(GrammarCase grammar_case) {
  if (grammar_case == GrammarCase::kRoundK5) return GrammarReplay::kDraft;
  return grammar_case == GrammarCase::kFillThreads ? GrammarFill::kDraft : 0;
}

std::vector<std::string> Cells(const GrammarMeasurement& m) {
  if (m.IsRefused()) return {std::string(GrammarCaseName(m.grammar_case)), m.constraint, "refused"};
  std::vector<std::string> cells = {std::string(GrammarCaseName(m.grammar_case)),
                                    m.constraint,
                                    std::string(m.unit),
                                    Number(m, m.value.median),
                                    Number(m, m.value.p90),
                                    Number(m, m.value.p99),
                                    fmt::format("{}", m.value.num_samples)};
  if (!m.HasBase()) return cells;
  for (const double value : {m.base.median, m.base.p90, m.base.p99}) {
    cells.push_back(Number(m, value));
  }
  cells.push_back(fmt::format("{:.3f}", m.value.median / m.base.median));
  cells.push_back(fmt::format("{:.3f}", m.value.p90 / m.base.p90));
  cells.push_back(fmt::format("{:.3f}", m.value.p99 / m.base.p99));
  return cells;
}

std::vector<Table::Column> ColumnsOf(const GrammarMeasurement& m) {
  std::vector<Table::Column> columns = {{"case", 10}, {"constraint", 11}, {"unit", 5},   {"p50", 9},
                                        {"p90", 9},   {"p99", 9},         {"samples", 7}};
  if (m.HasBase()) {
    columns.insert(columns.end(), {{"base p50", 10},
                                   {"base p90", 10},
                                   {"base p99", 10},
                                   {"ratio p50", 9},
                                   {"ratio p90", 9},
                                   {"ratio p99", 9}});
  }
  return columns;
}

}  // namespace

std::string ToJson(const GrammarMeasurement& m, const Machine& machine) {
  if (m.IsRefused()) {
    return fmt::format(
        R"({{"suite":"grammar","case":"{}","constraint":"{}","vocab":{},"refused_by":"{}",)"
        R"("refusal":{},"processor":{}}})",
        GrammarCaseName(m.grammar_case), m.constraint, m.vocab_size, m.refused_by,
        toy::QuoteJson(m.refusal), toy::QuoteJson(machine.processor));
  }
  std::string line = fmt::format(
      R"({{"suite":"grammar","case":"{}","constraint":"{}","vocab":{},"draft":{},"median":{:.3f},)"
      R"("p10":{:.3f},"p90":{:.3f},"p99":{:.3f},"unit":"{}","samples":{},"checked":{})",
      GrammarCaseName(m.grammar_case), m.constraint, m.vocab_size, DraftOf(m.grammar_case),
      m.value.median, m.value.p10, m.value.p90, m.value.p99, m.unit, m.value.num_samples,
      m.num_checked);
  if (m.HasBase()) {
    line += fmt::format(R"(,"ratio":{:.4f},"ratio_p90":{:.4f},"ratio_p99":{:.4f},"ratio_of":"{}",)"
                        R"("base_median":{:.3f},"base_p90":{:.3f},"base_p99":{:.3f})",
                        m.value.median / m.base.median, m.value.p90 / m.base.p90,
                        m.value.p99 / m.base.p99, m.base_of, m.base.median, m.base.p90, m.base.p99);
  }
  if (m.HasTarget()) {
    line += fmt::format(R"(,"target":{:.2f},"target_p99":{:.2f},"met":{})", m.target, m.target_p99,
                        m.IsMet());
  }
  return line + fmt::format(R"(,"foreign_load":{:.3f},"steal":{:.3f},"processor":{}}})",
                            m.load.others, m.load.stolen, toy::QuoteJson(machine.processor));
}

void GrammarReport::PrintHead(const std::string& command, const std::string& machine) const {
  if (options_.format == ReportFormat::kJson) return;
  bench::PrintHead(options_, command, machine);
}

void GrammarReport::Print(const GrammarMeasurement& measurement) {
  if (options_.format == ReportFormat::kJson) {
    fmt::print(options_.out, "{}\n", ToJson(measurement, machine_));
  } else {
    if (printed_.empty()) {
      fmt::print(options_.out, "V = {}; {}\n\n", measurement.vocab_size,
                 measurement.HasBase()
                     ? fmt::format("base = {}, ratio = specd / base", measurement.base_of)
                     : "no peer");
      table_.Begin(ColumnsOf(measurement));
    }
    std::vector<std::string> cells = Cells(measurement);
    cells.resize(ColumnsOf(printed_.empty() ? measurement : printed_.front()).size(), "-");
    table_.Print(cells);
  }
  printed_.push_back(measurement);
  std::fflush(options_.out);
}

void GrammarReport::PrintEnd() const {
  if (options_.format == ReportFormat::kJson || printed_.empty()) return;
  bool is_first = true;
  for (const GrammarMeasurement& m : printed_) {
    if (!m.IsRefused()) continue;
    fmt::print(options_.out, "{}{} is refused by {}: {}\n", is_first ? "\n" : "", m.constraint,
               m.refused_by, m.refusal);
    is_first = false;
  }
  for (const GrammarMeasurement& m : printed_) {
    if (!m.HasTarget()) continue;
    fmt::print(options_.out,
               "{}{}: p50 {:.2f} us, target {:.0f}; p99 {:.2f} us, target {:.0f}: {}\n",
               is_first ? "\n" : "", GrammarCaseName(m.grammar_case), m.value.median, m.target,
               m.value.p99, m.target_p99, m.IsMet() ? "met" : "missed");
    is_first = false;
  }
  const ForeignLoad& load = printed_.front().load;
  if (!IsDisturbed(load)) return;
  fmt::print(options_.out,
             "\nThe machine was not quiet: other processes took {:.0f} % of its CPUs, and the "
             "hypervisor {:.0f} %.\n",
             100 * load.others, 100 * load.stolen);
}

}  // namespace specd::bench
