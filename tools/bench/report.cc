#include "tools/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "tools/toy_engine/json_string.h"

namespace specd::bench {
namespace {

using Column = Table::Column;

constexpr Column kColumns[] = {{"case", 16},     {"method", 11}, {"dtype", 5},     {"vocab", 6},
                               {"batch", 5},     {"draft", 5},   {"median us", 9}, {"p99 us", 9},
                               {"us/row", 7},    {"base us", 9}, {"GB/s", 5},      {"ratio", 6},
                               {"p10..p90", 16}, {"checked", 7}, {"load", 5}};
// On a device, cold and warm take turns, and a whole round has a time of its own.
constexpr Column kColumnsOnDevice[] = {{"state", 5}, {"whole us", 9}, {"whole p10..p90", 16}};

std::vector<Column> ColumnsOf(bool is_on_device) {
  std::vector<Column> columns(std::begin(kColumns), std::end(kColumns));
  if (!is_on_device) return columns;
  columns.pop_back();  // the load of CPUs
  columns.insert(columns.end(), std::begin(kColumnsOnDevice), std::end(kColumnsOnDevice));
  return columns;
}

std::vector<std::string> Cells(const Measurement& m) {
  const double num_rows = static_cast<double>(m.batch) * (m.draft + 1);
  std::vector<std::string> cells = {
      std::string(m.case_name),
      std::string(m.method),
      std::string(DTypeName(m.dtype)),
      fmt::format("{}", m.vocab_size),
      fmt::format("{}", m.batch),
      fmt::format("{}", m.draft),
      fmt::format("{:.1f}", m.time_us.median),
      fmt::format("{:.1f}", m.time_us.p99),
      fmt::format("{:.2f}", m.time_us.median / num_rows),
      fmt::format("{:.1f}", m.base_us.median),
      m.IsSpeedUp() ? "-" : fmt::format("{:.1f}", m.base_gigabytes_per_s),
      fmt::format("{:.2f}", m.ratio),
      fmt::format("{:.2f}..{:.2f}", m.ratio_p10, m.ratio_p90),
      m.num_checked == 0 ? "none" : fmt::format("{}", m.num_checked)};
  if (!m.IsOnDevice()) {
    cells.push_back(fmt::format("{:.0f} %", 100 * (m.load.others + m.load.stolen)));
    return cells;
  }
  const Summary& whole = m.whole_us;
  const bool has_whole = whole.num_samples > 0;
  cells.emplace_back(m.cold ? "cold" : "warm");
  cells.push_back(has_whole ? fmt::format("{:.1f}", whole.median) : "-");
  cells.push_back(has_whole ? fmt::format("{:.1f}..{:.1f}", whole.p10, whole.p90) : "-");
  return cells;
}

std::string TargetText(const Measurement& m) {
  if (IsDisturbed(m.load)) return "disturbed: measure again";
  if (m.IsMet()) return "met";
  const double missing = m.target_us > 0 ? m.time_us.median / m.target_us - 1
                         : m.IsSpeedUp() ? m.target / m.ratio - 1
                                         : m.ratio / m.target - 1;
  return fmt::format("missed by {:.0f} %", 100 * missing);
}

std::string CaptionOf(const Measurement& m) {
  const std::string_view base =
      m.ratio_of == kApproximateExp2 ? "ratio = time of sums of weights / the same with ex2.approx"
      : !m.IsSpeedUp()               ? "ratio = time of specd / time of a read of the same rows"
      : m.ratio_of == "llama" ? "ratio = time of llama.cpp's sample-and-accept loop / time of specd"
                              : "ratio = time of a textbook sampler / time of specd";
  if (m.IsOnDevice()) {
    return fmt::format("{}, on the device; whole = wall time of a round of the backend", base);
  }
  return fmt::format("{}; {} rows, {} thread{}", base, m.cold ? "cold" : "warm", m.threads,
                     m.threads == 1 ? "" : "s");
}

}  // namespace

std::string ToJson(const Measurement& m, const Machine& machine) {
  std::string line = fmt::format(
      R"({{"suite":"{}","case":"{}","vocab":{},"batch":{},"draft":{},"dtype":"{}",)"
      R"("method":"{}","state":"{}","rows":"{}","median":{:.3f},"p10":{:.3f},"p90":{:.3f},)"
      R"("p99":{:.3f},"unit":"us","samples":{},"ratio":{:.4f},"ratio_p10":{:.4f},)"
      R"("ratio_p90":{:.4f},"ratio_of":"{}","base_median":{:.3f},"base_p99":{:.3f},"checked":{})",
      m.suite, m.case_name, m.vocab_size, m.batch, m.draft, DTypeName(m.dtype), m.method,
      m.cold ? "cold" : "warm", m.rows, m.time_us.median, m.time_us.p10, m.time_us.p90,
      m.time_us.p99, m.time_us.num_samples, m.ratio, m.ratio_p10, m.ratio_p90, m.ratio_of,
      m.base_us.median, m.base_us.p99, m.num_checked);
  if (!m.IsOnDevice()) {
    line += fmt::format(R"(,"threads":{},"foreign_load":{:.3f},"steal":{:.3f})", m.threads,
                        m.load.others, m.load.stolen);
  }
  if (const Summary& whole = m.whole_us; whole.num_samples > 0) {
    line += fmt::format(
        R"(,"whole_median":{:.3f},"whole_p10":{:.3f},"whole_p90":{:.3f},"whole_p99":{:.3f},)"
        R"("whole_samples":{})",
        whole.median, whole.p10, whole.p90, whole.p99, whole.num_samples);
  }
  if (!m.IsSpeedUp()) line += fmt::format(R"(,"base_gb_per_s":{:.2f})", m.base_gigabytes_per_s);
  if (m.target > 0) line += fmt::format(R"(,"target":{:.2f})", m.target);
  if (m.target_us > 0) line += fmt::format(R"(,"target_us":{:.2f})", m.target_us);
  if (m.HasTarget()) line += fmt::format(R"(,"met":{})", m.IsMet());
  return line + fmt::format(R"(,"processor":{}}})", toy::QuoteJson(machine.processor));
}

void Report::PrintHead(const std::string& command, const std::string& machine) {
  if (options_.format == ReportFormat::kJson) return;
  bench::PrintHead(options_, command, machine);
}

void Report::Print(const Measurement& measurement) {
  printed_.push_back(measurement);
  if (options_.format == ReportFormat::kJson) {
    fmt::print(options_.out, "{}\n", ToJson(measurement, machine_));
  } else {
    if (const std::string caption = CaptionOf(measurement); section_ != caption) {
      section_ = caption;
      fmt::print(options_.out, "{}{}\n\n", printed_.size() > 1 ? "\n" : "", caption);
      table_.Begin(ColumnsOf(measurement.IsOnDevice()));
    }
    table_.Print(Cells(measurement));
  }
  std::fflush(options_.out);
}

void Report::PrintEnd() {
  if (options_.format == ReportFormat::kJson) return;
  PrintTargets();
  PrintDisturbed();
}

void Report::PrintTargets() {
  const auto has_target = [](const Measurement& m) { return m.HasTarget(); };
  if (std::none_of(printed_.begin(), printed_.end(), has_target)) return;
  const bool markdown = options_.format == ReportFormat::kMarkdown;
  fmt::print(options_.out, "\n{}",
             markdown ? "| case | dtype | measured | target | |\n| --- | --- | --- | --- | --- |\n"
                      : "case              dtype   measured  target\n");
  for (const Measurement& m : printed_) {
    if (!has_target(m)) continue;
    const bool is_time = m.target_us > 0;
    const std::string measured =
        is_time ? fmt::format("{:.2f} us", m.time_us.median) : fmt::format("{:.2f}", m.ratio);
    const std::string target =
        is_time ? fmt::format("<= {:.2f} us", m.target_us)
                : fmt::format("{} {:.2f}", m.IsSpeedUp() ? ">=" : "<=", m.target);
    if (markdown) {
      fmt::print(options_.out, "| {} | {} | {} | {} | {} |\n", m.case_name, DTypeName(m.dtype),
                 measured, target, TargetText(m));
      continue;
    }
    const std::string_view colour = !options_.colour || IsDisturbed(m.load) ? ""
                                    : m.IsMet()                             ? "\x1b[32m"
                                                                            : "\x1b[31m";
    fmt::print(options_.out, "{:<16}  {:<5}  {:>9}  {:<11}  {}{}{}\n", m.case_name,
               DTypeName(m.dtype), measured, target, colour, TargetText(m),
               options_.colour ? "\x1b[0m" : "");
  }
}

void Report::PrintDisturbed() {
  const auto disturbed = std::count_if(printed_.begin(), printed_.end(),
                                       [](const Measurement& m) { return IsDisturbed(m.load); });
  if (disturbed == 0) return;
  fmt::print(options_.out,
             "\n{} of {} measurements were disturbed: other processes took more than {:.0f} % of "
             "the CPUs, or the hypervisor more than {:.0f} %.\n",
             disturbed, printed_.size(), 100 * kOthersMax, 100 * kStolenMax);
}

}  // namespace specd::bench
