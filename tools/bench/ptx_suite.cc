// The suite `ptx`: times of rounds on devices, predicted from counts of their PTX.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/bench/ptx_counts.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {
namespace {

struct Predicted {
  RoundCounts counts;
  const DeviceFigures* device = nullptr;
  RoundPrediction round;
  RoundPrediction read;

  double ratio() const { return round.us / read.us; }
  double busy_ratio() const { return round.busy_us / read.busy_us; }
};

absl::StatusOr<std::vector<Predicted>> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (path.empty() || !file) {
    return absl::InvalidArgumentError(
        fmt::format("counts = {} cannot be read: give the file that specd_ptx_counts has written "
                    "(docs/BENCHMARKS.md)",
                    path));
  }
  SPECD_TAKE(const std::vector<RoundCounts> all, ParseCounts(text.str()));
  std::vector<Predicted> lines;
  for (const RoundCounts& counts : all) {
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

double Sum(const RoundCounts& counts, int64_t LaunchCounts::*member) {
  double sum = 0;
  for (const LaunchCounts& launch : counts.round) sum += static_cast<double>(launch.*member);
  return sum;
}

// The columns of instructions, and the classes of each.
struct Class {
  std::string_view title;
  std::array<std::string_view, 4> names;
};
constexpr Class kClasses[] = {{"float", {"float"}},
                              {"alu", {"alu", "wide_alu", "multiply", "wide_multiply"}},
                              {"move", {"move"}},
                              {"memory", {"memory", "shared", "local", "atomic"}}};

int64_t ClassSum(const RoundCounts& counts, std::span<const std::string_view> names) {
  int64_t sum = 0;
  for (const LaunchCounts& launch : counts.round) {
    for (const auto& [name, number] : launch.num_by_class) {
      if (std::ranges::count(names, name) > 0) sum += number;
    }
  }
  return sum;
}

constexpr double kSectorMegabytes = 32e-6;

// Cases whose ratio is a goal for the model and not for a device.
constexpr double kModelTarget = 1.5;
constexpr std::string_view kModelCases[] = {"temperature", "topk40_topp95"};

Goal GoalOf(const Predicted& line) {
  const VerifyCase* const known = FindCase(GpuCases(), line.counts.case_name);
  if (known == nullptr) return {};
  const bool is_of_model = std::ranges::find(kModelCases, known->name) != std::end(kModelCases);
  if (line.counts.batch == 64) {
    return {.measured = line.ratio(), .bound = is_of_model ? kModelTarget : known->target_gpu};
  }
  if (line.counts.batch != 1) return {};
  // A goal in us is one for the launches alone.
  return {
      .measured = line.round.us - line.round.gap_us, .bound = known->target_gpu_us, .unit = "us"};
}

Line BeginLine(const RoundCounts& counts) {
  Line line;
  line.Name("case", counts.case_name, 14)
      .Cell("PTX", 4, "{}", counts.arch)
      .Count("batch", counts.batch, 5)
      .Cell("launches", 8, "{}", counts.round.size());
  return line;
}

Line InstructionsOf(const RoundCounts& counts) {
  const int64_t all = counts.num_instructions();
  int64_t other = all;
  Line line = BeginLine(counts);
  line.Cell("instr/element", 13, "{:.2f}", PerElement(counts, all));
  for (const auto& [title, names] : kClasses) {
    const int64_t number = ClassSum(counts, names);
    other -= number;
    line.Cell(title, 6, "{:.2f}", PerElement(counts, number));
  }
  line.Cell("other", 6, "{:.2f}", PerElement(counts, other))
      .Cell("idle", 6, "{:.1f} %",
            100 * Sum(counts, &LaunchCounts::num_idle_lanes) / (32.0 * static_cast<double>(all)))
      .Cell("chain", 8, "{:.0f}", Sum(counts, &LaunchCounts::chain_instructions))
      .Cell("cycles", 8, "{:.0f}", Sum(counts, &LaunchCounts::chain_cycles));
  return line;
}

// The traffic of global memory, and the bank conflicts of shared memory.
Line MemoryOf(const RoundCounts& counts) {
  const double asked = Sum(counts, &LaunchCounts::asked_sectors);
  const double needed = Sum(counts, &LaunchCounts::needed_sectors);
  const double repeated = Sum(counts, &LaunchCounts::repeated_row_sectors);
  double read = 0;
  for (const LaunchCounts& launch : counts.read) read += static_cast<double>(launch.needed_sectors);
  Line line = BeginLine(counts);
  line.Cell("accessed MB", 11, "{:.2f}", Sum(counts, &LaunchCounts::asked_bytes) / 1e6)
      .Cell("asked MB", 8, "{:.2f}", asked * kSectorMegabytes)
      .Cell("needed MB", 9, "{:.2f}", needed * kSectorMegabytes)
      .Cell("read MB", 8, "{:.2f}", read * kSectorMegabytes)
      .Cell("asked/needed", 12, "{:.3f}", asked / needed)
      .Cell("needed/read", 11, "{:.3f}", needed / read)
      .Cell("rows again", 10, "{:.1f} %",
            100 * repeated / (Sum(counts, &LaunchCounts::asked_row_sectors) - repeated))
      .Cell("conflicts", 9, "{:.0f}", Sum(counts, &LaunchCounts::num_bank_conflicts));
  return line;
}

Line PredictionOf(const Predicted& of) {
  const RoundCounts& counts = of.counts;
  Line line;
  line.Name("case", counts.case_name, 14)
      .Name("device", of.device->name, 6)
      .Count("batch", counts.batch, 5)
      .Number("predicted us", 12, 1, of.round.us)
      .Number("read us", 8, 1, of.read.us)
      .Number("ratio", 6, 2, of.ratio())
      .Cell("without chain", 13, "{:.2f}", of.busy_ratio())
      .Name("bound", BoundName(of.round.bound), 8)
      .Target(GoalOf(of))
      .Json("dtype", counts.dtype)
      .Json("draft", counts.draft)
      .Json("vocab", counts.vocab_size)
      .Json("instructions_per_element", PerElement(counts, counts.num_instructions()));
  return line;
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

Line LaunchOf(const Predicted& of, const LaunchCounts& launch) {
  const LaunchPrediction predicted = PredictLaunch(launch, *of.device);
  Line line;
  line.Name("case", of.counts.case_name, 14)
      .Name("device", of.device->name, 6)
      .Name("batch", fmt::format("{}", of.counts.batch), 5)
      .Name("kernel", launch.kernel, 22)
      .Cell("predicted us", 12, "{:.1f}", predicted.us())
      .Cell("without chain us", 16, "{:.1f}", predicted.busy_us())
      .Cell("bound by", 8, "{}", BoundName(predicted.bound()))
      .Cell("rows MB", 8, "{:.2f}", static_cast<double>(launch.asked_row_sectors) * 32e-6)
      .Cell("again MB", 8, "{:.2f}", static_cast<double>(launch.repeated_row_sectors) * 32e-6)
      .Name("functions of the longest warp", LongFunctions(launch), 0);
  return line;
}

absl::Status RunPtx(const Flags& flags, Output* out) {
  if (out->is_json() && flags.IsOn("launches")) {
    return absl::InvalidArgumentError("launches is a table: leave --json out, or --launches");
  }
  SPECD_TAKE(const std::vector<Predicted> lines, ReadLines(flags.Text("counts")));
  out->Begin("", "no device: predicted from counts of executed PTX");
  if (!out->is_json()) {
    for (const Predicted& line : lines) out->Print(InstructionsOf(line.counts));
    out->NextTable();
    for (const Predicted& line : lines) out->Print(MemoryOf(line.counts));
    out->NextTable();
  }
  for (const Predicted& line : lines) out->Print(PredictionOf(line));
  if (!flags.IsOn("launches")) return absl::OkStatus();
  out->NextTable();
  for (const Predicted& line : lines) {
    for (const LaunchCounts& launch : line.counts.round) out->Print(LaunchOf(line, launch));
  }
  return absl::OkStatus();
}

}  // namespace

Suite PtxCommand() {
  return {
      .name = "ptx",
      .summary = "predicted times of gpu's rounds, from counts of their PTX",
      .examples = {"--counts=counts.jsonl --markdown"},
      .cases = {},
      .flags = {{.name = "counts", .help = "a file of counts that specd_ptx_counts has written"},
                {.name = "launches",
                 .kind = Flag::Kind::kSwitch,
                 .help = "prints each launch, with the functions that its longest warp is in"}},
      .run = &RunPtx};
}

}  // namespace specd::bench
