#include "tools/bench/ptx_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_split.h"
#include "simdjson.h"

namespace specd::bench {
namespace {

using simdjson::dom::element;

// The members of both by their names in a file, in its order.
template <class Counts, class Visit>
void VisitLaunch(Counts& launch, const Visit& visit) {
  visit("kernel", launch.kernel);
  visit("blocks", launch.num_blocks);
  visit("threads", launch.threads_per_block);
  visit("idle_lanes", launch.num_idle_lanes);
  visit("asked_bytes", launch.asked_bytes);
  visit("asked_sectors", launch.asked_sectors);
  visit("needed_sectors", launch.needed_sectors);
  visit("asked_row_sectors", launch.asked_row_sectors);
  visit("repeated_row_sectors", launch.repeated_row_sectors);
  visit("shared_turns", launch.num_shared_turns);
  visit("bank_conflicts", launch.num_bank_conflicts);
  visit("chain_cycles", launch.chain_cycles);
  visit("chain_instructions", launch.chain_instructions);
  visit("chain_functions", launch.chain_functions);
  visit("classes", launch.num_by_class);
}

template <class Counts, class Visit>
void VisitRound(Counts& counts, const Visit& visit) {
  visit("case", counts.case_name);
  visit("dtype", counts.dtype);
  visit("arch", counts.arch);
  visit("processors", counts.num_processors);
  visit("batch", counts.batch);
  visit("draft", counts.draft);
  visit("vocab", counts.vocab_size);
  visit("elements", counts.num_elements);
  visit("round", counts.round);
  visit("read", counts.read);
}

std::string TextOf(int64_t number) { return fmt::format("{}", number); }
std::string TextOf(const std::string& name) { return fmt::format("\"{}\"", name); }
std::string TextOf(const std::map<std::string, int64_t>& numbers) {
  std::string text;
  for (const auto& [name, number] : numbers) {
    text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", name, number);
  }
  return "{" + text + "}";
}
std::string TextOf(const std::vector<LaunchCounts>& launches) {
  std::vector<std::string> texts;
  for (const LaunchCounts& launch : launches) {
    std::vector<std::string> members;
    VisitLaunch(launch, [&](const char* name, const auto& member) {
      members.push_back(fmt::format("\"{}\": {}", name, TextOf(member)));
    });
    texts.push_back(fmt::format("{{{}}}", fmt::join(members, ", ")));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

// False: the member is of another type; `missing` is the first such of an object below.
bool Take(const element& from, std::string* out, std::string*) {
  std::string_view value;
  if (from.get(value) != simdjson::SUCCESS) return false;
  *out = value;
  return true;
}
template <class Number>
bool Take(const element& from, Number* out, std::string*) {
  int64_t value = 0;
  if (from.get(value) != simdjson::SUCCESS) return false;
  *out = static_cast<Number>(value);
  return true;
}
bool Take(const element& from, std::map<std::string, int64_t>* out, std::string* missing) {
  simdjson::dom::object numbers;
  if (from.get(numbers) != simdjson::SUCCESS) return false;
  for (const auto& field : numbers) {
    if (!Take(field.value, &(*out)[std::string(field.key)], missing)) return false;
  }
  return true;
}
bool Take(const element& from, std::vector<LaunchCounts>* out, std::string* missing);

// Takes each member that it visits.
auto TakeFrom(const element& from, std::string* missing) {
  return [from, missing](const char* name, auto& member) {
    element value;
    const bool is_there = from[name].get(value) == simdjson::SUCCESS;
    if ((!is_there || !Take(value, &member, missing)) && missing->empty()) *missing = name;
  };
}

bool Take(const element& from, std::vector<LaunchCounts>* out, std::string* missing) {
  simdjson::dom::array launches;
  if (from.get(launches) != simdjson::SUCCESS) return false;
  for (const element launch : launches) {
    VisitLaunch(out->emplace_back(), TakeFrom(launch, missing));
  }
  return true;
}

// ---- the model

// Processors, clock and bandwidth: NVIDIA's data sheets of the H200 SXM (67 TFLOPS of fp32 over 132
// processors, 4.8 TB/s), the A100 SXM 80 GB (19.5 TFLOPS over 108, 2,039 GB/s) and the B200 SXM (75
// TFLOPS over 148, 8 TB/s). L2: the whitepaper of the A100 (5,120 bytes a cycle); taken for the
// others too. Lanes: CUDA C++ Programming Guide, "Arithmetic Instructions". The gaps are estimates.
constexpr std::array kDevices{
    DeviceFigures{"H200", 90, 132, 1.98, 4800, 5120, 1.5, 0.7, 128, 64},
    DeviceFigures{"A100", 80, 108, 1.41, 2039, 5120, 1.5, 1.5, 64, 32},
    DeviceFigures{"B200", 90, 148, 1.98, 8000, 5120, 1.5, 0.7, 128, 64},
};

// The share of the bandwidth that a read of everything reaches. An estimate.
constexpr double kReachedBandwidth = 0.92;
constexpr double kWarpLanes = 32;
constexpr double kIssuesPerCycle = 4;  // of a processor, one for each of its schedulers
constexpr double kSectorBytes = 32;
constexpr double kAluLanes = 64;
constexpr double kSlowLanes = 16;       // rcp, ex2, conversions, popc
constexpr double kMemoryLanes = 32;     // loads, stores, shuffles
constexpr double kBytesPerCycle = 128;  // between a processor's registers and its nearest memory

// Machine instructions for one of the PTX, as ptxas is expected to make them: sums of 64 bits are
// two, products four, quotients a sequence that counts for the unit of floats. Moves of registers
// mostly vanish.
double InstructionsFor(std::string_view name) {
  if (name == "move") return 0;
  if (name == "wide_alu") return 2;
  if (name == "wide_multiply") return 4;
  if (name == "divide") return 20;
  return 1;
}

double Sum(const LaunchCounts& counts, std::initializer_list<std::string_view> names) {
  double sum = 0;
  for (const std::string_view name : names) {
    const auto found = counts.num_by_class.find(std::string(name));
    if (found == counts.num_by_class.end()) continue;
    sum += InstructionsFor(name) * static_cast<double>(found->second);
  }
  return sum;
}

// Cycles that one processor would take for all instructions.
double IssueCycles(const LaunchCounts& counts, const DeviceFigures& device) {
  double all = 0;
  for (const auto& [name, count] : counts.num_by_class) {
    all += InstructionsFor(name) * static_cast<double>(count);
  }
  const auto unit = [&](double lanes, std::initializer_list<std::string_view> names) {
    return Sum(counts, names) * kWarpLanes / lanes;
  };
  return std::max(
      {all / kIssuesPerCycle, unit(device.float_lanes, {"float", "divide"}),
       unit(kAluLanes, {"alu", "wide_alu"}), unit(kAluLanes, {"multiply", "wide_multiply"}),
       unit(device.double_lanes, {"double"}), unit(kSlowLanes, {"special", "convert", "bit_count"}),
       unit(kMemoryLanes, {"memory", "shared", "local", "atomic", "exchange"}),
       static_cast<double>(counts.asked_bytes) / kBytesPerCycle});
}

}  // namespace

int64_t LaunchCounts::num_instructions() const {
  int64_t sum = 0;
  for (const auto& [name, count] : num_by_class) sum += count;
  return sum;
}

int64_t RoundCounts::num_instructions() const {
  int64_t sum = 0;
  for (const LaunchCounts& launch : round) sum += launch.num_instructions();
  return sum;
}

std::string ToJson(const RoundCounts& counts) {
  std::vector<std::string> members;
  VisitRound(counts, [&](const char* name, const auto& member) {
    members.push_back(fmt::format("\"{}\": {}", name, TextOf(member)));
  });
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

absl::StatusOr<std::vector<RoundCounts>> ParseCounts(std::string_view text) {
  std::vector<RoundCounts> all;
  simdjson::dom::parser parser;
  int64_t line_number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++line_number;
    if (line.empty()) continue;
    const auto refused = [line_number](const std::string& what) {
      return absl::InvalidArgumentError(
          fmt::format("line {}{}: count the rounds again", line_number, what));
    };
    element document;
    if (parser.parse(line.data(), line.size()).get(document) != simdjson::SUCCESS) {
      return refused(" is no JSON");
    }
    RoundCounts& counts = all.emplace_back();
    std::string missing;
    VisitRound(counts, TakeFrom(document, &missing));
    if (!missing.empty()) {
      return refused(fmt::format(": {} is missing or of another type", missing));
    }
    if (counts.num_elements <= 0 || counts.round.empty() || counts.read.empty()) {
      return refused(": a round needs elements, and launches for itself and its read");
    }
  }
  return all;
}

const DeviceFigures* FindPtxDevice(int32_t arch, int32_t num_processors) {
  for (const DeviceFigures& device : kDevices) {
    if (device.arch == arch && device.num_processors == num_processors) return &device;
  }
  return nullptr;
}

std::string_view BoundName(Bound bound) {
  constexpr std::string_view kNames[] = {"issue", "memory", "shared", "chain"};
  return kNames[static_cast<size_t>(bound)];
}

double LaunchPrediction::us() const { return std::max(busy_us(), chain_us); }

double LaunchPrediction::busy_us() const { return std::max({issue_us, memory_us, shared_us}); }

Bound LaunchPrediction::bound() const {
  const double longest = us();
  if (longest == memory_us) return Bound::kMemory;
  if (longest == issue_us) return Bound::kIssue;
  return longest == chain_us ? Bound::kChain : Bound::kShared;
}

LaunchPrediction PredictLaunch(const LaunchCounts& counts, const DeviceFigures& device) {
  const auto used =
      static_cast<double>(std::min<int64_t>(counts.num_blocks, device.num_processors));
  const double cycles_per_us = device.clock_ghz * 1e3;
  const double needed_bytes = kSectorBytes * static_cast<double>(counts.needed_sectors);
  const double asked_bytes = kSectorBytes * static_cast<double>(counts.asked_sectors);
  const double from_memory_us =
      needed_bytes / (kReachedBandwidth * device.memory_gigabytes_per_s * 1e3);
  const double from_l2_us = asked_bytes / device.l2_bytes_per_cycle / cycles_per_us;
  const auto shared_cycles = static_cast<double>(counts.num_shared_turns);
  return {.issue_us = IssueCycles(counts, device) / used / cycles_per_us,
          .memory_us = std::max(from_memory_us, from_l2_us),
          .shared_us = shared_cycles / used / cycles_per_us,
          .chain_us = static_cast<double>(counts.chain_cycles) / cycles_per_us};
}

RoundPrediction PredictRound(std::span<const LaunchCounts> launches, const DeviceFigures& device) {
  RoundPrediction round;
  double longest_us = -1;
  for (size_t i = 0; i < launches.size(); ++i) {
    const LaunchPrediction launch = PredictLaunch(launches[i], device);
    round.gap_us += i == 0 ? device.gap_us : device.early_gap_us;
    round.us += launch.us();
    round.busy_us += launch.busy_us();
    if (launch.us() <= longest_us) continue;
    longest_us = launch.us();
    round.bound = launch.bound();
  }
  round.us += round.gap_us;
  round.busy_us += round.gap_us;
  return round;
}

}  // namespace specd::bench
