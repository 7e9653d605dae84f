#include "tools/bench/python_suite.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "tools/bench/ipc_scene.h"
#include "tools/bench/steady_clock.h"

namespace specd::bench {
namespace {

constexpr double kOpenings = kPythonBatch;
constexpr PythonCase kCases[] = {
    {"batch256", false, BatchWork::kRoundBatch, BatchWork::kRoundEach, 16, 1, 1.5, 0,
     "a round of 256 sequences with 4 drafts each, embedded"},
    {"batch256_attached", true, BatchWork::kRoundBatch, BatchWork::kRoundEach, 16, 1, 1.5, 0,
     "the same, attached to a daemon"},
    {"open256", false, BatchWork::kOpenBatch, BatchWork::kOpenEach, 2, kOpenings, 0, 10,
     "256 openings with prompts of 32 ids, embedded; times are for one opening"},
    {"open256_attached", true, BatchWork::kOpenBatch, BatchWork::kOpenEach, 2, kOpenings, 0, 10,
     "the same, attached to a daemon"},
    {"drafts", false, BatchWork::kDrawBatch, BatchWork::kDrawEach, 16, 1, 0, 0,
     "a draft token for each of 256 sequences, from rows of the drafter, embedded"},
    {"drafts_attached", true, BatchWork::kDrawBatch, BatchWork::kDrawEach, 2, 1, 0, 0,
     "the same, attached to a daemon"},
};

constexpr size_t kLeastBlocks = 10;
// The calls for single sequences take longer, and are a comparison only.
constexpr int kEachRepetitions = 2;

// The last CPU that this process may use.
int ChooseDaemonCpu() {
  cpu_set_t usable;
  int last = 0;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return last;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &usable)) last = cpu;
  }
  return last;
}

// The times of all blocks, and the median of the last one.
struct Times {
  std::vector<double> all_us;
  double last_us = 0;

  void Add(std::vector<double> block_us, double divisor) {
    for (double& time : block_us) time /= divisor;
    all_us.insert(all_us.end(), block_us.begin(), block_us.end());
    last_us = Summarise(std::move(block_us)).median;
  }
};

template <class Engine>
absl::Status RunBlock(Engine* engine, BatchWork work, int count, double divisor, Times* times) {
  std::vector<double> block_us;
  const absl::Status status = engine->Run(work, count, &block_us);
  if (status.ok()) times->Add(std::move(block_us), divisor);
  return status;
}

}  // namespace

std::span<const PythonCase> PythonCases() { return kCases; }

const PythonCase* FindPythonCase(std::string_view name) {
  const auto found = std::find_if(std::begin(kCases), std::end(kCases),
                                  [name](const PythonCase& known) { return known.name == name; });
  return found == std::end(kCases) ? nullptr : found;
}

absl::Status PythonSuite::Run() {
  for (const PythonCase* const python_case : options_.cases) {
    std::unique_ptr<IpcDaemon> daemon;
    if (python_case->is_attached) {
      auto started = IpcDaemon::Start(options_.specd, ChooseDaemonCpu(), 0);
      if (!started.ok()) return started.status();
      daemon = *std::move(started);
    }
    for (const int32_t vocab_size : options_.vocab_sizes) {
      hooks_.on_progress(fmt::format("{}: vocabulary {}", python_case->name, vocab_size));
      const absl::Status status = Measure(daemon == nullptr ? "embedded:cpu" : daemon->uri(),
                                          {.python_case = python_case, .vocab_size = vocab_size});
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status PythonSuite::Measure(const std::string& uri, PythonMeasurement measurement) {
  const PythonCase& work = *measurement.python_case;
  const auto vocab_size = static_cast<uint32_t>(measurement.vocab_size);
  const auto c = BatchEngine::Open(uri, vocab_size);
  if (!c.ok()) return c.status();
  const auto python = PythonEngine::Start(options_.python, uri, vocab_size);
  if (!python.ok()) return python.status();
  Times c_times, python_times, c_each, python_each;
  std::vector<double> ratios;
  std::optional<LoadMeter> meter;
  const SteadyClock::time_point end =
      SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                               std::chrono::duration<double>(options_.seconds));
  for (size_t block = 0; block <= kLeastBlocks || SteadyClock::now() < end; ++block) {
    for (absl::Status status :
         {RunBlock(c->get(), work.batch, work.block, work.divisor, &c_times),
          RunBlock(python->get(), work.batch, work.block, work.divisor, &python_times),
          RunBlock(c->get(), work.each, kEachRepetitions, work.divisor, &c_each),
          RunBlock(python->get(), work.each, kEachRepetitions, work.divisor, &python_each)}) {
      if (!status.ok()) return status;
    }
    if (block == 0) {  // the first block warms everything up
      c_times = python_times = c_each = python_each = {};
      meter.emplace();
      continue;
    }
    ratios.push_back(python_times.last_us / c_times.last_us);
  }
  measurement.load = meter->Read();
  if ((*c)->digest() != (*python)->digest()) {
    return absl::InternalError("python: the two engines have kept different tokens");
  }
  measurement.c_us = Summarise(std::move(c_times.all_us));
  measurement.python_us = Summarise(std::move(python_times.all_us));
  measurement.c_each_us = Summarise(std::move(c_each.all_us));
  measurement.python_each_us = Summarise(std::move(python_each.all_us));
  measurement.ratio = Summarise(std::move(ratios));
  hooks_.on_result(measurement);
  return absl::OkStatus();
}

}  // namespace specd::bench
