#include "tools/bench/gpu_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/captured_graph.h"
#include "tools/bench/gpu_rounds.h"
#include "tools/bench/round_check.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// Launches of the warm round in a replay. With this many, an event's resolution of half a
// microsecond does not show in a time.
constexpr int32_t kWarmLaunches = 16;
// Rounds may be far apart: decisions do not need every row.
constexpr int64_t kCachesBetween = 4;
// The share of a measurement's time for whole rounds. With one sequence there are thousands of
// them.
constexpr double kWholeShare = 0.1;

absl::Status StatusOf(const GpuResult& result) {
  if (result.ok()) return absl::OkStatus();
  return absl::InternalError(fmt::format("the device failed: {}", result.text()));
}

// The three points in time of a replay.
class Events {
 public:
  explicit Events(GpuProbes* probes) : probes_(probes) {}
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    for (GpuProbes::Event* const event : all_) {
      const GpuResult result = event == nullptr ? GpuResult::Ok() : probes_->DestroyEvent(event);
      if (!result.ok()) fmt::print(stderr, "specd-bench: an event: {}\n", result.text());
    }
  }

  absl::Status Create() {
    for (GpuProbes::Event*& event : all_) SPECD_TRY(StatusOf(probes_->CreateEvent(&event)));
    return absl::OkStatus();
  }
  GpuResult Record(size_t event) const { return probes_->RecordEvent(all_[event]); }
  // Adds the time between this event and the next, divided by the number of rounds.
  absl::Status Add(size_t event, size_t num_rounds, Times* times_us) const {
    double time_us = 0;
    SPECD_TRY(StatusOf(probes_->ElapsedUs(all_[event], all_[event + 1], &time_us)));
    times_us->push_back(time_us / static_cast<double>(num_rounds));
    return absl::OkStatus();
  }

 private:
  GpuProbes* probes_;
  GpuProbes::Event* all_[3] = {};
};

// One replay: every round, then a read of every round's rows.
GpuResult Capture(GpuDriver* driver, const std::vector<int32_t>& order, const Events& events,
                  GpuRounds* rounds, CapturedGraph* graph) {
  return graph->Capture(driver, [&] {
    GpuResult result = events.Record(0);
    for (size_t i = 0; i < order.size() && result.ok(); ++i) result = rounds->LaunchRound(order[i]);
    if (result.ok()) result = events.Record(1);
    for (size_t i = 0; i < order.size() && result.ok(); ++i) result = rounds->LaunchRead(order[i]);
    return result.ok() ? events.Record(2) : result;
  });
}

// The launches of GpuRounds are the device's work once all data is there. Here a round begins with
// its tasks in host memory and its rows on the device, and ends when its answer is in host memory.
// Whole rounds are timed apart from the replays, whose first rounds would otherwise find their rows
// in the cache.
absl::Status TimeWhole(const Cell& cell, const AnsweredCell& answered, const GpuRounds& rounds,
                       double seconds, Backend* backend, Measurement* measurement) {
  const auto num_rounds = static_cast<size_t>(measurement->cold ? cell.shape.num_rounds : 1);
  std::vector<Side> sides(1);
  sides[0].turn = [&, index = size_t{0}](Times* times_us) mutable -> absl::Status {
    const auto round = static_cast<int32_t>(index++ % num_rounds);
    // A new answer, so that a missing write is noticed.
    RoundAnswer answer = answered.set->MakeAnswer();
    const RoundBatch batch = rounds.Batch(round, &answer);
    const SteadyClock::time_point start = SteadyClock::now();
    const absl::Status run = backend->Run(batch);
    times_us->push_back(MicrosSince(start));
    SPECD_TRY(run);
    const std::string difference =
        DifferenceOf(*answered.set, round, answer, answered.answers[static_cast<size_t>(round)]);
    return difference.empty() ? run : absl::InternalError("as a whole, " + difference);
  };
  SPECD_TRY(TakeTurns({kWholeShare * seconds}, num_rounds, &sides).status());
  measurement->whole_us = Summarise(std::move(sides[0].times_us));
  return absl::OkStatus();
}

absl::Status Time(const Cell& cell, const std::vector<RoundAnswer>& expected, const OpenGpu& gpu,
                  double seconds, GpuRounds* rounds, Measurement* measurement) {
  const bool cold = measurement->cold;
  std::vector<int32_t> order(static_cast<size_t>(cold ? cell.shape.num_rounds : kWarmLaunches), 0);
  for (size_t i = 0; cold && i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  Events events(gpu.probes.get());
  CapturedGraph graph;
  SPECD_TRY(events.Create());
  SPECD_TRY(StatusOf(Capture(gpu.driver.get(), order, events, rounds, &graph)));
  const auto replay = [&] {
    const GpuResult launched = graph.Launch();
    const GpuResult finished = gpu.driver->Synchronize();
    return StatusOf(launched.ok() ? finished : launched);
  };
  const auto check = [&]() -> absl::Status {
    rounds->SpoilAnswers();
    SPECD_TRY(replay());
    for (const int32_t round : order) {
      const std::string difference =
          rounds->Difference(round, expected[static_cast<size_t>(round)]);
      if (!difference.empty()) return absl::InternalError(difference);
    }
    return absl::OkStatus();
  };

  SPECD_TRY(check());  // also warms up: the first replay is not timed
  Times case_us;
  Times base_us;
  SPECD_TRY(Repeat({seconds}, [&](size_t) -> absl::Status {
    SPECD_TRY(replay());
    SPECD_TRY(events.Add(0, order.size(), &case_us));
    return events.Add(1, order.size(), &base_us);
  }));
  SPECD_TRY(check());  // the timed rounds must still give these answers

  SetTimes(case_us, base_us, measurement);
  double read_bytes = 0;
  for (const int32_t round : order) read_bytes += rounds->read_bytes(round);
  measurement->base_gigabytes_per_s =
      read_bytes / static_cast<double>(order.size()) / measurement->base_us.median / 1e3;
  const bool has_target = cold && cell.vocab_size == 128256 && cell.shape.draft == 5 &&
                          cell.dtype == DType::kBFloat16 &&
                          measurement->rows == RowShapeName(RowShape::kLlm);
  const auto target_of = [&](int32_t batch, double target) {
    return has_target && cell.shape.batch == batch ? target : 0;
  };
  measurement->target = target_of(64, cell.verify_case->target_gpu);
  measurement->target_us = target_of(1, cell.verify_case->target_gpu_us);
  return absl::OkStatus();
}

absl::Status RunCell(const Cell& cell, const VerifyOptions& options, const OpenGpu& gpu,
                     const RoundHooks& hooks, PoolCache* pools) {
  SPECD_TAKE(auto cpu, MakeBackend("cpu"));
  SPECD_TAKE(AnsweredCell answered, AnswerCell(cell, options.threads, std::move(cpu), pools));
  Measurement& cold = answered.measurement;
  cold.threads = 0;
  cold.ratio_of = kRead;
  for (const RoundAnswer& answer : answered.answers) {
    for (const TaskOutcome& outcome : answer.outcomes) cold.num_checked += outcome.num_tokens;
  }
  GpuRounds rounds(gpu.driver.get(), gpu.probes.get(), *answered.set);
  SPECD_TRY(StatusOf(rounds.Load(answered.answers)));
  Measurement warm = cold;
  warm.cold = false;
  for (Measurement* const each : {&cold, &warm}) {
    SPECD_TRY(Time(cell, answered.answers, gpu, options.seconds, &rounds, each));
  }
  SPECD_TAKE(const auto backend, hooks.make_backend());
  SPECD_TRY(backend->Prepare(cell.limits(1)));
  for (Measurement* const each : {&cold, &warm}) {
    SPECD_TRY(TimeWhole(cell, answered, rounds, options.seconds, backend.get(), each));
  }
  hooks.on_result(cold);
  hooks.on_result(warm);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenGpu> OpenFirstGpu(
    std::unique_ptr<GpuDriver> driver,
    absl::FunctionRef<std::unique_ptr<GpuProbes>(GpuDriver*)> make_probes) {
  if (driver == nullptr) {
    return absl::FailedPreconditionError(
        "no device: this specd-bench was built without nvcc; build again with nvcc on PATH and "
        "-DSPECD_CUDA=ON");
  }
  std::vector<GpuDevice> devices;
  GpuResult result = driver->ListDevices(&devices);
  if (result.ok() && devices.empty()) result = GpuResult::Error("the driver shows none");
  if (result.ok()) result = driver->UseDevice(0);
  std::unique_ptr<GpuProbes> probes = make_probes(driver.get());
  if (result.ok()) result = probes->Load();
  if (!result.ok()) {
    return absl::FailedPreconditionError(
        fmt::format("no device: {}; check nvidia-smi and CUDA_VISIBLE_DEVICES", result.text()));
  }
  return OpenGpu{std::move(driver), std::move(probes), devices[0]};
}

absl::Status MeasureGpu(const VerifyOptions& options, const OpenGpu& gpu, const RoundHooks& hooks) {
  const int64_t between = kCachesBetween * gpu.device.l2_bytes;
  const auto num_rounds = [between](const Cell& cell) {
    return static_cast<int32_t>((between + cell.round_bytes() - 1) / cell.round_bytes() + 1);
  };
  const auto all = [](const VerifyCase&, DType) { return true; };
  PoolCache pools(options.shape, options.rows_path);
  return RunCells(CellsOf(options, all), hooks, num_rounds, [&](const Cell& cell) {
    const absl::Status status = RunCell(cell, options, gpu, hooks, &pools);
    const std::string name = Describe(cell);
    const std::string what(status.message());
    if (status.ok() || what.starts_with(name)) return status;
    return absl::Status(status.code(), fmt::format("{}: {}", name, what));
  });
}

}  // namespace specd::bench
