#include "tools/bench/ptx_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "tools/bench/command.h"
#include "tools/bench/gpu_case.h"
#include "tools/bench/ptx_counts.h"
#include "tools/bench/ptx_model.h"
#include "tools/bench/table.h"

ABSL_FLAG(std::string, counts, "", "for ptx: a file of counts that specd_ptx_counts has written");
ABSL_FLAG(bool, launches, false,
          "for ptx: prints each launch, with the functions that its longest warp is in");

namespace specd::bench {
namespace {

struct Line {
  RoundCounts counts;
  const DeviceFigures* device = nullptr;
  RoundPrediction round;
  RoundPrediction read;

  double ratio() const { return round.us / read.us; }
  double busy_ratio() const { return round.busy_us / read.busy_us; }
};

absl::StatusOr<std::vector<Line>> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (path.empty() || !file) {
    return absl::InvalidArgumentError(
        fmt::format("counts = {} cannot be read: give the file that specd_ptx_counts has written "
                    "(docs/BENCHMARKS.md)",
                    path));
  }
  const absl::StatusOr<std::vector<RoundCounts>> all = ParseCounts(text.str());
  if (!all.ok()) return all.status();
  std::vector<Line> lines;
  for (const RoundCounts& counts : *all) {
    const DeviceFigures* const device = FindPtxDevice(counts.arch, counts.num_processors);
    if (device == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("counts of PTX for {} on {} processors belong to no known device: count for "
                      "132 or 148 (90), or for 108 (80)",
                      counts.arch, counts.num_processors));
    }
    lines.push_back({.counts = counts,
                     .device = device,
                     .round = PredictRound(counts.round, *device),
                     .read = PredictRound(counts.read, *device)});
  }
  return lines;
}

// Instructions of a lane for each element of the rows that the round needs.
double PerElement(const RoundCounts& counts, int64_t num_instructions) {
  return 32.0 * static_cast<double>(num_instructions) / static_cast<double>(counts.num_elements);
}

template <typename Member>
int64_t SumOf(const RoundCounts& counts, Member member) {
  int64_t sum = 0;
  for (const LaunchCounts& launch : counts.round) sum += launch.*member;
  return sum;
}

int64_t ClassSum(const RoundCounts& counts, std::initializer_list<const char*> names) {
  int64_t sum = 0;
  for (const LaunchCounts& launch : counts.round) {
    for (const char* const name : names) {
      const auto found = launch.num_by_class.find(name);
      if (found != launch.num_by_class.end()) sum += found->second;
    }
  }
  return sum;
}

// Cases whose ratio is a goal for the model and not for a device.
constexpr double kModelTarget = 1.5;
constexpr std::string_view kModelCases[] = {"temperature", "topk40_topp95"};

std::string TargetText(const Line& line) {
  const VerifyCase* const known = FindGpuCase(line.counts.case_name);
  if (known == nullptr) return "-";
  const bool is_of_model = std::ranges::find(kModelCases, known->name) != std::end(kModelCases);
  const double target = is_of_model ? kModelTarget : known->target_gpu;
  if (line.counts.batch == 64 && target > 0) {
    return fmt::format("{:.2f}{}", target, line.ratio() <= target ? "" : " missed");
  }
  if (line.counts.batch == 1 && known->target_gpu_us > 0) {
    // A goal in us is one for the launches alone.
    const double launches_us = line.round.us - line.round.gap_us;
    return fmt::format("{:.0f} us{}", known->target_gpu_us,
                       launches_us <= known->target_gpu_us ? "" : " missed");
  }
  return "-";
}

std::vector<std::string> Names(const RoundCounts& counts) {
  return {counts.case_name, fmt::format("{}", counts.arch), fmt::format("{}", counts.batch),
          fmt::format("{}", counts.round.size())};
}

constexpr Table::Column kNames[] = {{"case", 14}, {"PTX", 4}, {"batch", 5}, {"launches", 8}};

void Begin(std::initializer_list<Table::Column> columns, Table* table) {
  std::vector<Table::Column> all(std::begin(kNames), std::end(kNames));
  all.insert(all.end(), columns);
  table->Begin(std::move(all));
}

void Print(const RoundCounts& counts, std::initializer_list<std::string> cells,
           const Table& table) {
  std::vector<std::string> all = Names(counts);
  all.insert(all.end(), cells);
  table.Print(all);
}

void PrintInstructions(const ReportOptions& options, const std::vector<Line>& lines) {
  Table table(options, 1);
  Begin({{"instr/element", 13},
         {"float", 6},
         {"alu", 6},
         {"move", 6},
         {"memory", 6},
         {"other", 6},
         {"idle", 6},
         {"chain", 8},
         {"cycles", 8}},
        &table);
  for (const Line& line : lines) {
    const RoundCounts& counts = line.counts;
    const int64_t num_instructions = counts.num_instructions();
    const int64_t floats = ClassSum(counts, {"float"});
    const int64_t alu = ClassSum(counts, {"alu", "wide_alu", "multiply", "wide_multiply"});
    const int64_t moves = ClassSum(counts, {"move"});
    const int64_t memory = ClassSum(counts, {"memory", "shared", "local", "atomic"});
    const int64_t others = num_instructions - floats - alu - moves - memory;
    const double idle = static_cast<double>(SumOf(counts, &LaunchCounts::num_idle_lanes)) /
                        (32.0 * static_cast<double>(num_instructions));
    Print(counts,
          {fmt::format("{:.2f}", PerElement(counts, num_instructions)),
           fmt::format("{:.2f}", PerElement(counts, floats)),
           fmt::format("{:.2f}", PerElement(counts, alu)),
           fmt::format("{:.2f}", PerElement(counts, moves)),
           fmt::format("{:.2f}", PerElement(counts, memory)),
           fmt::format("{:.2f}", PerElement(counts, others)), fmt::format("{:.1f} %", 100 * idle),
           fmt::format("{}", SumOf(counts, &LaunchCounts::chain_instructions)),
           fmt::format("{}", SumOf(counts, &LaunchCounts::chain_cycles))},
          table);
  }
}

// Prints the traffic of global memory, and the bank conflicts of shared memory.
void PrintMemory(const ReportOptions& options, const std::vector<Line>& lines) {
  constexpr double kSectorMegabytes = 32e-6;
  Table table(options, 1);
  Begin({{"accessed MB", 11},
         {"asked MB", 8},
         {"needed MB", 9},
         {"read MB", 8},
         {"asked/needed", 12},
         {"needed/read", 11},
         {"rows again", 10},
         {"conflicts", 9}},
        &table);
  for (const Line& line : lines) {
    const RoundCounts& counts = line.counts;
    const auto accessed_bytes = static_cast<double>(SumOf(counts, &LaunchCounts::asked_bytes));
    const auto asked = static_cast<double>(SumOf(counts, &LaunchCounts::asked_sectors));
    const auto needed = static_cast<double>(SumOf(counts, &LaunchCounts::needed_sectors));
    const auto asked_rows = static_cast<double>(SumOf(counts, &LaunchCounts::asked_row_sectors));
    const auto repeated = static_cast<double>(SumOf(counts, &LaunchCounts::repeated_row_sectors));
    double read = 0;
    for (const LaunchCounts& launch : counts.read) {
      read += static_cast<double>(launch.needed_sectors);
    }
    Print(counts,
          {fmt::format("{:.2f}", accessed_bytes / 1e6),
           fmt::format("{:.2f}", asked * kSectorMegabytes),
           fmt::format("{:.2f}", needed * kSectorMegabytes),
           fmt::format("{:.2f}", read * kSectorMegabytes), fmt::format("{:.3f}", asked / needed),
           fmt::format("{:.3f}", needed / read),
           fmt::format("{:.1f} %", 100 * repeated / (asked_rows - repeated)),
           fmt::format("{}", SumOf(counts, &LaunchCounts::num_bank_conflicts))},
          table);
  }
}

void PrintPredictions(const ReportOptions& options, const std::vector<Line>& lines) {
  Table table(options, 2);
  table.Begin({{"case", 14},
               {"device", 6},
               {"batch", 5},
               {"predicted us", 12},
               {"read us", 8},
               {"ratio", 6},
               {"without chain", 13},
               {"bound by", 8},
               {"target", 12}});
  for (const Line& line : lines) {
    table.Print({line.counts.case_name, std::string(line.device->name),
                 fmt::format("{}", line.counts.batch), fmt::format("{:.1f}", line.round.us),
                 fmt::format("{:.1f}", line.read.us), fmt::format("{:.2f}", line.ratio()),
                 fmt::format("{:.2f}", line.busy_ratio()), std::string(BoundName(line.round.bound)),
                 TargetText(line)});
  }
}

// The functions in which the longest warp is for a tenth of its time or more, the longest first.
std::string LongFunctions(const LaunchCounts& launch) {
  std::vector<std::pair<int64_t, std::string>> functions;
  for (const auto& [name, cycles] : launch.chain_functions) {
    // The kernel is a function too, and holds all of the time.
    if (10 * cycles >= launch.chain_cycles && name != launch.kernel) {
      functions.emplace_back(cycles, name);
    }
  }
  std::ranges::sort(functions, std::greater());
  std::string text;
  for (const auto& [cycles, name] : functions) {
    text +=
        fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name,
                    100.0 * static_cast<double>(cycles) / static_cast<double>(launch.chain_cycles));
  }
  return text.empty() ? "-" : text;
}

void PrintLaunches(const ReportOptions& options, const std::vector<Line>& lines) {
  Table table(options, 4);
  table.Begin({{"case", 14},
               {"device", 6},
               {"batch", 5},
               {"kernel", 22},
               {"predicted us", 12},
               {"without chain us", 16},
               {"bound by", 8},
               {"rows MB", 8},
               {"again MB", 8},
               {"functions of the longest warp", 0}});
  for (const Line& line : lines) {
    for (const LaunchCounts& launch : line.counts.round) {
      const LaunchPrediction predicted = PredictLaunch(launch, *line.device);
      table.Print({line.counts.case_name, std::string(line.device->name),
                   fmt::format("{}", line.counts.batch), launch.kernel,
                   fmt::format("{:.1f}", predicted.us()),
                   fmt::format("{:.1f}", predicted.busy_us()),
                   std::string(BoundName(predicted.bound())),
                   fmt::format("{:.2f}", static_cast<double>(launch.asked_row_sectors) * 32e-6),
                   fmt::format("{:.2f}", static_cast<double>(launch.repeated_row_sectors) * 32e-6),
                   LongFunctions(launch)});
    }
  }
}

void PrintJson(const Line& line) {
  fmt::print(
      "{{\"suite\": \"ptx\", \"case\": \"{}\", \"device\": \"{}\", \"dtype\": \"{}\", \"batch\": "
      "{}, \"draft\": {}, \"vocab\": {}, \"predicted_us\": {:.3f}, \"read_us\": {:.3f}, \"ratio\": "
      "{:.4f}, \"bound\": \"{}\", \"instructions_per_element\": {:.4f}}}\n",
      line.counts.case_name, line.device->name, line.counts.dtype, line.counts.batch,
      line.counts.draft, line.counts.vocab_size, line.round.us, line.read.us, line.ratio(),
      BoundName(line.round.bound), PerElement(line.counts, line.counts.num_instructions()));
}

}  // namespace

int RunPtx(const std::string& command) {
  constexpr std::string_view kTaken[] = {"counts", "json", "launches", "markdown"};
  if (const absl::Status status = CheckFlags("ptx", kTaken); !status.ok()) {
    return Fail(kExitUsage, std::string(status.message()));
  }
  const absl::StatusOr<ReportOptions> report = ReportOptionsFromFlags();
  if (!report.ok()) return Fail(kExitUsage, std::string(report.status().message()));
  const absl::StatusOr<std::vector<Line>> lines = ReadLines(absl::GetFlag(FLAGS_counts));
  if (!lines.ok()) return Fail(kExitUsage, std::string(lines.status().message()));
  if (report->format == ReportFormat::kJson) {
    if (absl::GetFlag(FLAGS_launches)) {
      return Fail(kExitUsage, "launches is a table: leave --json out, or --launches");
    }
    for (const Line& line : *lines) PrintJson(line);
    return 0;
  }
  PrintHead(*report, command, "no device: predicted from counts of executed PTX");
  PrintInstructions(*report, *lines);
  fmt::print("\n");
  PrintMemory(*report, *lines);
  fmt::print("\n");
  PrintPredictions(*report, *lines);
  if (absl::GetFlag(FLAGS_launches)) {
    fmt::print("\n");
    PrintLaunches(*report, *lines);
  }
  return 0;
}

}  // namespace specd::bench
