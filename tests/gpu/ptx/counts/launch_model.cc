#include "tests/gpu/ptx/counts/launch_model.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "tests/gpu/ptx/machine/op_class.h"

namespace specd::ptx {
namespace {

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
double InstructionsFor(OpClass op_class) {
  if (op_class == OpClass::kMove) return 0;
  if (op_class == OpClass::kWideAlu) return 2;
  if (op_class == OpClass::kWideMultiply) return 4;
  return op_class == OpClass::kDivide ? 20 : 1;
}

double Sum(const LaunchProfile& counts, std::initializer_list<OpClass> classes) {
  double sum = 0;
  for (const OpClass op_class : classes) {
    sum += InstructionsFor(op_class) *
           static_cast<double>(counts.num_by_class[static_cast<size_t>(op_class)]);
  }
  return sum;
}

// Cycles that one processor would take for all instructions.
double IssueCycles(const LaunchProfile& counts, const DeviceFigures& device) {
  double all = 0;
  for (size_t i = 0; i < kNumOpClasses; ++i) all += Sum(counts, {static_cast<OpClass>(i)});
  const auto unit = [&](double lanes, std::initializer_list<OpClass> classes) {
    return Sum(counts, classes) * kWarpLanes / lanes;
  };
  using enum OpClass;
  return std::max({all / kIssuesPerCycle, unit(device.float_lanes, {kFloat, kDivide}),
                   unit(kAluLanes, {kAlu, kWideAlu}), unit(kAluLanes, {kMultiply, kWideMultiply}),
                   unit(device.double_lanes, {kDouble}),
                   unit(kSlowLanes, {kSpecial, kConvert, kBitCount}),
                   unit(kMemoryLanes, {kMemory, kShared, kLocal, kAtomic, kExchange}),
                   static_cast<double>(counts.asked_bytes) / kBytesPerCycle});
}

}  // namespace

const DeviceFigures* FindDevice(int arch, int num_processors) {
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

LaunchPrediction PredictLaunch(const LaunchProfile& counts, const DeviceFigures& device) {
  const auto used = std::min<double>(counts.num_blocks, device.num_processors);
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

RoundPrediction PredictRound(std::span<const LaunchProfile> launches, const DeviceFigures& device) {
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

}  // namespace specd::ptx
