#include "tests/gpu/ptx/counts/prediction_table.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"

namespace specd::ptx {
namespace {

using bench::Cell;
using bench::Goal;
using bench::Line;

Goal GoalOf(const Cell& cell, const RoundPrediction& round, double ratio) {
  if (cell.vocab_size != 128256 || cell.shape.draft != 5) return {};
  const bench::VerifyCase& known = *cell.verify_case;
  if (cell.shape.batch == 64) return {.measured = ratio, .bound = known.targets.gpu};
  if (cell.shape.batch != 1) return {};
  // A goal in us is one for the launches alone.
  return {.measured = round.us - round.gap_us, .bound = known.targets.gpu_us, .unit = "us"};
}

// The name without its scopes, template arguments and parameters: JudgePlace for
// `specd::PlaceVerdict specd::JudgePlace<true, Team>(ChainRows&, int)`.
std::string ShortName(const std::string& mangled) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (text == nullptr) return mangled;
  const std::string whole = absl::StrReplaceAll(text, {{"(anonymous namespace)::", ""}});
  std::free(text);
  size_t begin = 0;
  size_t end = 0;
  int depth = 0;
  for (size_t i = 0; i < whole.size() && !(depth == 0 && whole[i] == '('); ++i) {
    const char c = whole[i];
    if (c == '<') ++depth;
    if (c == '>') --depth;
    if (depth > 0 || c == '>') continue;
    if (c == ':' || c == ' ') begin = i + 1;
    end = i + 1;
  }
  return whole.substr(begin, end - begin);
}

std::string LongFunctions(const LaunchProfile& launch) {
  std::map<std::string, uint64_t> cycles_of;
  for (const auto& [name, cycles] : launch.chain_functions) cycles_of[ShortName(name)] += cycles;
  std::vector<std::pair<uint64_t, std::string>> functions;
  for (const auto& [name, cycles] : cycles_of) {
    // The kernel is a function too, and holds all of the time.
    if (10 * cycles >= launch.chain_cycles && name != ShortName(launch.kernel)) {
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

}  // namespace

Line PredictionLine(const Cell& cell, const RoundCounts& counts, const DeviceFigures& device) {
  const RoundPrediction round = PredictRound(counts.round, device);
  const RoundPrediction read = PredictRound(counts.read, device);
  const double ratio = round.us / read.us;
  uint64_t num_instructions = 0;
  for (const LaunchProfile& launch : counts.round) num_instructions += launch.num_instructions();
  Line line;
  line.Name("case", cell.verify_case->name, 14)
      .Name("device", device.name, 6)
      .Count("batch", cell.shape.batch, 5)
      .Number("predicted us", 12, 1, round.us)
      .Number("read us", 8, 1, read.us)
      .Number("ratio", 6, 2, ratio)
      .Number("without chain", 13, 2, round.busy_us / read.busy_us)
      .Name("bound", BoundName(round.bound), 8)
      // Instructions of a lane for each element of the rows that the round needs.
      .Number(
          "instr/element", 13, 2,
          32.0 * static_cast<double>(num_instructions) / static_cast<double>(counts.num_elements))
      .Target(GoalOf(cell, round, ratio));
  return line;
}

Line LaunchLine(const Cell& cell, const LaunchProfile& launch, const DeviceFigures& device) {
  constexpr double kSectorMegabytes = 32e-6;
  const LaunchPrediction predicted = PredictLaunch(launch, device);
  Line line;
  line.Name("case", cell.verify_case->name, 14)
      .Count("batch", cell.shape.batch, 5)
      .Name("kernel", ShortName(launch.kernel), 22)
      .Number("predicted us", 12, 1, predicted.us())
      .Number("without chain us", 16, 1, predicted.busy_us())
      .Name("bound by", BoundName(predicted.bound()), 8)
      .Number("rows MB", 8, 2, static_cast<double>(launch.asked_row_sectors) * kSectorMegabytes)
      .Number("again MB", 8, 2, static_cast<double>(launch.repeated_row_sectors) * kSectorMegabytes)
      .Number("conflicts", 9, 0, static_cast<double>(launch.num_bank_conflicts))
      .Name("functions of the longest warp", LongFunctions(launch), 0);
  return line;
}

}  // namespace specd::ptx
