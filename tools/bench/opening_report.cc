#include "tools/bench/opening_report.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tools/bench/table.h"
#include "tools/toy_engine/json_string.h"

namespace specd::bench {
namespace {

std::string RatioCell(double ratio) { return ratio == 0 ? "-" : fmt::format("{:.2f}", ratio); }

std::vector<std::string> CellsOf(const OpeningMeasurement& m) {
  const bool has_openings = m.opening_us.num_samples > 0;
  return {std::string(m.opening_case->name),
          fmt::format("{}", m.opening_case->num_prompt_ids),
          fmt::format("{}", m.opening_us.num_samples),
          has_openings ? fmt::format("{:.1f}", m.opening_us.median) : "-",
          fmt::format("{}", m.round_us.num_samples),
          fmt::format("{:.1f}", m.round_us.median),
          fmt::format("{:.1f}", m.round_us.p99),
          fmt::format("{:.1f}", m.round_us.max),
          RatioCell(m.ratio),
          RatioCell(m.ratio_p99),
          RatioCell(m.ratio_max),
          fmt::format("{:.0f} %", 100 * (m.load.others + m.load.stolen))};
}

}  // namespace

std::string ToJson(const OpeningMeasurement& m, const Machine& machine) {
  std::string line = fmt::format(
      R"({{"suite":"opening","case":"{}","prompt_ids":{},"median":{:.3f},"p10":{:.3f},)"
      R"("p90":{:.3f},"p99":{:.3f},"max":{:.3f},"unit":"us","samples":{},"openings":{},)"
      R"("opening_median":{:.3f})",
      m.opening_case->name, m.opening_case->num_prompt_ids, m.round_us.median, m.round_us.p10,
      m.round_us.p90, m.round_us.p99, m.round_us.max, m.round_us.num_samples,
      m.opening_us.num_samples, m.opening_us.median);
  if (m.ratio > 0) {
    line += fmt::format(R"(,"ratio":{:.4f},"ratio_p99":{:.4f},"ratio_max":{:.4f},"ratio_of":"{}")",
                        m.ratio, m.ratio_p99, m.ratio_max, kTinyOpenings);
  }
  return line + fmt::format(R"(,"foreign_load":{:.3f},"steal":{:.3f},"processor":{}}})",
                            m.load.others, m.load.stolen, toy::QuoteJson(machine.processor));
}

void PrintOpenings(std::span<const OpeningMeasurement> measurements, const ReportOptions& options,
                   const Machine& machine) {
  if (options.format == ReportFormat::kJson) {
    for (const OpeningMeasurement& m : measurements) {
      fmt::print(options.out, "{}\n", ToJson(m, machine));
    }
    return;
  }
  fmt::print(options.out,
             "rounds of one engine while its neighbour opens sequences; ratio = beside prompts of "
             "this length / beside prompts of one id\n\n");
  Table table(options, 1);
  table.Begin({{"case", 12},
               {"prompt ids", 10},
               {"openings", 8},
               {"opening us", 10},
               {"rounds", 8},
               {"median us", 9},
               {"p99 us", 9},
               {"max us", 10},
               {"ratio", 6},
               {"ratio p99", 9},
               {"ratio max", 9},
               {"load", 5}});
  for (const OpeningMeasurement& m : measurements) table.Print(CellsOf(m));
}

}  // namespace specd::bench
