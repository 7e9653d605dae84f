#include "tools/bench/ipc_suite.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "tools/bench/steady_clock.h"

namespace specd::bench {
namespace {

// A daemon looks for rounds across the blocks of the embedded engine.
constexpr int32_t kSpinUs = 200'000;
constexpr IpcCase kCases[] = {
    {"added_asleep", 0, 0, 0, "both sides sleep while they wait"},
    {"added_spin", kSpinUs, 2, 5, "both sides look for each other's words while they wait"},
};

constexpr int kBlockRounds = 16;
constexpr int kBlockWarmUp = 2;
constexpr size_t kLeastRounds = 200;
constexpr size_t kMostRounds = 200'000;

// The first two CPUs that this process may use.
absl::StatusOr<std::pair<int, int>> ChooseCpus() {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) == 0) {
    int first = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &usable)) continue;
      if (first >= 0) return std::pair(first, cpu);
      first = cpu;
    }
  }
  return absl::FailedPreconditionError("ipc: engine and daemon need a CPU each, and there is one");
}

void Compute(int32_t us) {
  const SteadyClock::time_point end = SteadyClock::now() + std::chrono::microseconds(us);
  while (SteadyClock::now() < end) {
  }
}

absl::Status RunBlock(IpcEngine* engine, int32_t gap_us, std::vector<double>* times) {
  for (int i = 0; i < kBlockWarmUp + kBlockRounds; ++i) {
    Compute(gap_us);
    const absl::StatusOr<double> time = engine->RunRound();
    if (!time.ok()) return time.status();
    if (i >= kBlockWarmUp) times->push_back(*time);
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const IpcCase> IpcCases() { return kCases; }

const IpcCase* FindIpcCase(std::string_view name) {
  const auto found = std::find_if(std::begin(kCases), std::end(kCases),
                                  [name](const IpcCase& known) { return known.name == name; });
  return found == std::end(kCases) ? nullptr : found;
}

absl::Status IpcSuite::Run() {
  const absl::StatusOr<std::pair<int, int>> cpus = ChooseCpus();
  if (!cpus.ok()) return cpus.status();
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(cpus->first, &own);
  if (sched_setaffinity(0, sizeof(own), &own) != 0) {
    return absl::FailedPreconditionError("ipc: this process cannot be pinned to a CPU");
  }
  for (const IpcCase* const ipc_case : options_.cases) {
    const absl::StatusOr<std::unique_ptr<IpcDaemon>> daemon =
        IpcDaemon::Start(options_.specd, cpus->second, ipc_case->spin_us);
    if (!daemon.ok()) return daemon.status();
    for (const int32_t vocab_size : options_.vocab_sizes) {
      for (const int32_t draft : options_.drafts) {
        for (const int32_t gap_us : options_.gaps_us) {
          hooks_.on_progress(fmt::format("{}: vocabulary {}, {} drafts, {} us between rounds",
                                         ipc_case->name, vocab_size, draft, gap_us));
          const absl::Status status = Measure(
              **daemon,
              {.ipc_case = ipc_case, .vocab_size = vocab_size, .draft = draft, .gap_us = gap_us});
          if (!status.ok()) return status;
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status IpcSuite::Measure(const IpcDaemon& daemon, IpcMeasurement measurement) {
  const IpcRound round = {static_cast<uint32_t>(measurement.vocab_size),
                          static_cast<uint32_t>(measurement.draft)};
  const int32_t spin_us = measurement.ipc_case->spin_us;
  const auto embedded = IpcEngine::Open("embedded:cpu", round, spin_us);
  if (!embedded.ok()) return embedded.status();
  const auto attached = IpcEngine::Open(daemon.uri(), round, spin_us);
  if (!attached.ok()) return attached.status();
  std::vector<double> embedded_us;
  std::vector<double> attached_us;
  const LoadMeter meter;
  const SteadyClock::time_point end =
      SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                               std::chrono::duration<double>(options_.seconds));
  while (embedded_us.size() < kLeastRounds ||
         (embedded_us.size() < kMostRounds && SteadyClock::now() < end)) {
    for (absl::Status status : {RunBlock(embedded->get(), measurement.gap_us, &embedded_us),
                                RunBlock(attached->get(), measurement.gap_us, &attached_us)}) {
      if (!status.ok()) return status;
    }
  }
  measurement.load = meter.Read();
  if ((*embedded)->digest() != (*attached)->digest()) {
    return absl::InternalError(
        fmt::format("ipc: after {} rounds the attached engine has other ids "
                    "than the embedded one",
                    (*embedded)->num_rounds()));
  }
  measurement.embedded_us = Summarise(std::move(embedded_us));
  measurement.attached_us = Summarise(std::move(attached_us));
  hooks_.on_result(measurement);
  return absl::OkStatus();
}

}  // namespace specd::bench
