// The suite `ptx`: times of rounds on devices, predicted from counts of their PTX.
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

#include "tools/bench/ptx_counts.h"
#include "tools/bench/ptx_model.h"
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

int64_t SumOf(const RoundCounts& counts, int64_t LaunchCounts::*member) {
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

std::string TargetText(const Predicted& line) {
  const VerifyCase* const known = FindCase(GpuCases(), line.counts.case_name);
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

Line BeginLine(const RoundCounts& counts) {
  Line line;
  line.Name("case", counts.case_name, 14)
      .Cell("PTX", 4, "{}", counts.arch)
      .Count("batch", counts.batch, 5)
      .Cell("launches", 8, "{}", counts.round.size());
  return line;
}

Line InstructionsOf(const RoundCounts& counts) {
  const int64_t num_instructions = counts.num_instructions();
  const int64_t floats = ClassSum(counts, {"float"});
  const int64_t alu = ClassSum(counts, {"alu", "wide_alu", "multiply", "wide_multiply"});
  const int64_t moves = ClassSum(counts, {"move"});
  const int64_t memory = ClassSum(counts, {"memory", "shared", "local", "atomic"});
  const double idle = static_cast<double>(SumOf(counts, &LaunchCounts::num_idle_lanes)) /
                      (32.0 * static_cast<double>(num_instructions));
  Line line = BeginLine(counts);
  line.Cell("instr/element", 13, "{:.2f}", PerElement(counts, num_instructions))
      .Cell("float", 6, "{:.2f}", PerElement(counts, floats))
      .Cell("alu", 6, "{:.2f}", PerElement(counts, alu))
      .Cell("move", 6, "{:.2f}", PerElement(counts, moves))
      .Cell("memory", 6, "{:.2f}", PerElement(counts, memory))
      .Cell("other", 6, "{:.2f}",
            PerElement(counts, num_instructions - floats - alu - moves - memory))
      .Cell("idle", 6, "{:.1f} %", 100 * idle)
      .Cell("chain", 8, "{}", SumOf(counts, &LaunchCounts::chain_instructions))
      .Cell("cycles", 8, "{}", SumOf(counts, &LaunchCounts::chain_cycles));
  return line;
}

// The traffic of global memory, and the bank conflicts of shared memory.
Line MemoryOf(const RoundCounts& counts) {
  constexpr double kSectorMegabytes = 32e-6;
  const auto sum = [&](int64_t LaunchCounts::*member) {
    return static_cast<double>(SumOf(counts, member));
  };
  const double asked = sum(&LaunchCounts::asked_sectors);
  const double needed = sum(&LaunchCounts::needed_sectors);
  const double repeated = sum(&LaunchCounts::repeated_row_sectors);
  double read = 0;
  for (const LaunchCounts& launch : counts.read) read += static_cast<double>(launch.needed_sectors);
  Line line = BeginLine(counts);
  line.Cell("accessed MB", 11, "{:.2f}", sum(&LaunchCounts::asked_bytes) / 1e6)
      .Cell("asked MB", 8, "{:.2f}", asked * kSectorMegabytes)
      .Cell("needed MB", 9, "{:.2f}", needed * kSectorMegabytes)
      .Cell("read MB", 8, "{:.2f}", read * kSectorMegabytes)
      .Cell("asked/needed", 12, "{:.3f}", asked / needed)
      .Cell("needed/read", 11, "{:.3f}", needed / read)
      .Cell("rows again", 10, "{:.1f} %",
            100 * repeated / (sum(&LaunchCounts::asked_row_sectors) - repeated))
      .Cell("conflicts", 9, "{}", SumOf(counts, &LaunchCounts::num_bank_conflicts));
  return line;
}

Line PredictionOf(const Predicted& of) {
  const RoundCounts& counts = of.counts;
  Line line;
  line.Name("case", counts.case_name, 14)
      .Name("device", of.device->name, 6)
      .Count("batch", counts.batch, 5)
      .Cell("predicted us", 12, "{:.1f}", of.round.us)
      .Cell("read us", 8, "{:.1f}", of.read.us)
      .Cell("ratio", 6, "{:.2f}", of.ratio())
      .Cell("without chain", 13, "{:.2f}", of.busy_ratio())
      .Cell("bound by", 8, "{}", BoundName(of.round.bound))
      .Cell("target", 12, "{}", TargetText(of))
      .Json("dtype", counts.dtype)
      .Json("draft", counts.draft)
      .Json("vocab", counts.vocab_size)
      .Json("predicted_us", of.round.us)
      .Json("read_us", of.read.us)
      .Json("ratio", of.ratio())
      .Json("bound", BoundName(of.round.bound))
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
