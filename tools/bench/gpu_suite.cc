#include "tools/bench/gpu_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/captured_graph.h"
#include "tools/bench/answer_difference.h"

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

absl::Status Failure(const Cell& cell, const GpuResult& result) {
  return absl::InternalError(
      fmt::format("{}: the device failed: {}", Describe(cell), result.text()));
}

// The three points in time of a replay.
class Events {
 public:
  explicit Events(GpuProbes* probes) : probes_(probes) {}
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    for (GpuProbes::Event* const event : {start, middle, end}) {
      if (event == nullptr) continue;
      const GpuResult result = probes_->DestroyEvent(event);
      if (!result.ok()) fmt::print(stderr, "specd-bench: an event: {}\n", result.text());
    }
  }

  GpuResult Create() {
    GpuResult result = probes_->CreateEvent(&start);
    if (result.ok()) result = probes_->CreateEvent(&middle);
    if (result.ok()) result = probes_->CreateEvent(&end);
    return result;
  }

  GpuProbes::Event* start = nullptr;
  GpuProbes::Event* middle = nullptr;
  GpuProbes::Event* end = nullptr;

 private:
  GpuProbes* probes_;
};

// One replay: every round, then a read of every round's rows. If weights alone are timed, every
// round comes before, so that answers can be checked. Then come every round's sums of weights,
// first with our exp2.
GpuResult Capture(GpuDriver* driver, GpuProbes* probes, const std::vector<int32_t>& order,
                  bool weights_only, const Events& events, GpuRounds* rounds,
                  CapturedGraph* graph) {
  return graph->Capture(driver, [&] {
    const auto each = [&](const auto& launch) {
      GpuResult result = GpuResult::Ok();
      for (size_t i = 0; i < order.size() && result.ok(); ++i) result = launch(order[i]);
      return result;
    };
    const auto run = [&](int32_t round) { return rounds->LaunchRound(round); };
    const auto read = [&](int32_t round) { return rounds->LaunchRead(round); };
    const auto weigh = [&](int32_t round) { return rounds->LaunchWeights(round, false); };
    const auto approximate = [&](int32_t round) { return rounds->LaunchWeights(round, true); };
    GpuResult result = weights_only ? each(run) : GpuResult::Ok();
    if (result.ok()) result = probes->RecordEvent(events.start);
    if (result.ok()) result = weights_only ? each(weigh) : each(run);
    if (result.ok()) result = probes->RecordEvent(events.middle);
    if (result.ok()) result = weights_only ? each(approximate) : each(read);
    if (result.ok()) result = probes->RecordEvent(events.end);
    return result;
  });
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

int32_t GpuSuite::NumRounds(const Cell& cell) const {
  const int64_t between = kCachesBetween * device_.l2_bytes;
  return static_cast<int32_t>((between + cell.round_bytes() - 1) / cell.round_bytes() + 1);
}

absl::Status GpuSuite::Run() {
  std::vector<Cell> cells = CellsOf(options_, [](const VerifyCase&, DType) { return true; });
  for (Cell& cell : cells) cell.shape.num_rounds = NumRounds(cell);
  for (size_t i = 0; i < cells.size(); ++i) {
    hooks_.on_progress(fmt::format("[{}/{}] {}", i + 1, cells.size(), Describe(cells[i])));
    if (absl::Status status = RunCell(cells[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status GpuSuite::RunCell(const Cell& cell) {
  const VerifyCase& verify_case = *cell.verify_case;
  const absl::StatusOr<Pools> pools = pools_.For(cell);
  if (!pools.ok()) return pools.status();
  absl::StatusOr<std::unique_ptr<Backend>> cpu = MakeBackend("cpu");
  if (!cpu.ok()) return cpu.status();
  absl::Status status = Prepare(cell, options_.threads, cpu->get());
  if (!status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<RoundSet>> set =
      RoundSet::Make(verify_case, cell.shape, *pools->target, pools->draft, cpu->get());
  if (!set.ok()) return set.status();

  Measurement measurement = MeasurementOf(cell, *pools);
  measurement.threads = 0;
  measurement.ratio_of =
      verify_case.weights_only ? kApproximateExp2 : BaselineName(Baseline::kRead);
  std::vector<RoundAnswer> expected;
  for (int32_t round = 0; round < cell.shape.num_rounds; ++round) {
    RoundAnswer answer = (*set)->MakeAnswer();
    status = (*cpu)->Run((*set)->Batch(round, &answer));
    if (!status.ok()) return status;
    // Sums of weights that are timed alone are not compared. Only the rounds before them are.
    for (const TaskOutcome& outcome : answer.outcomes) {
      measurement.num_checked += verify_case.weights_only ? 0 : outcome.num_tokens;
    }
    expected.push_back(std::move(answer));
  }
  GpuRounds rounds(driver_, probes_, **set);
  const GpuResult loaded = rounds.Load(expected);
  if (!loaded.ok()) return Failure(cell, loaded);
  Measurement warm = measurement;
  status = Time(cell, expected, true, &rounds, &measurement);
  if (status.ok()) status = Time(cell, expected, false, &rounds, &warm);
  if (status.ok() && !verify_case.weights_only) {
    status = TimeWhole(cell, **set, rounds, expected, &measurement, &warm);
  }
  if (!status.ok()) return status;
  hooks_.on_result(measurement);
  hooks_.on_result(warm);
  return absl::OkStatus();
}

// The launches of GpuRounds are the device's work once all data is there. Here a round begins with
// its tasks in host memory and its rows on the device, and ends when its answer is in host memory.
// Whole rounds are timed apart from the replays, whose first rounds would otherwise find their rows
// in the cache.
absl::Status GpuSuite::TimeWhole(const Cell& cell, const RoundSet& set, const GpuRounds& rounds,
                                 const std::vector<RoundAnswer>& expected, Measurement* cold,
                                 Measurement* warm) {
  const auto failure = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        fmt::format("{}: {}", Describe(cell), std::string(status.message())));
  };
  absl::StatusOr<std::unique_ptr<Backend>> backend = hooks_.make_backend();
  if (!backend.ok()) return failure(backend.status());
  absl::Status status = Prepare(cell, 1, backend->get());
  if (!status.ok()) return failure(status);
  for (Measurement* const measurement : {cold, warm}) {
    const auto num_rounds = static_cast<size_t>(measurement->cold ? cell.shape.num_rounds : 1);
    std::vector<double> times_us;
    const auto run_once = [&](size_t index) -> absl::Status {
      const auto round = static_cast<int32_t>(index % num_rounds);
      RoundAnswer answer = set.MakeAnswer();  // a new answer, so that a missing write is noticed
      const RoundBatch batch = rounds.Batch(round, &answer);
      const SteadyClock::time_point start = SteadyClock::now();
      const absl::Status run = (*backend)->Run(batch);
      times_us.push_back(MicrosSince(start));
      if (!run.ok()) return run;
      const std::string difference =
          DifferenceOf(set, round, answer, expected[static_cast<size_t>(round)]);
      return difference.empty() ? run : absl::InternalError("as a whole, " + difference);
    };
    for (size_t i = 0; i < num_rounds && status.ok(); ++i) status = run_once(i);
    times_us.clear();
    if (status.ok()) status = Repeat({kWholeShare * options_.seconds}, run_once);
    if (!status.ok()) return failure(status);
    measurement->whole_us = Summarise(std::move(times_us));
  }
  return absl::OkStatus();
}

absl::Status GpuSuite::Time(const Cell& cell, const std::vector<RoundAnswer>& expected, bool cold,
                            GpuRounds* rounds, Measurement* measurement) {
  std::vector<int32_t> order(static_cast<size_t>(cold ? cell.shape.num_rounds : kWarmLaunches), 0);
  for (size_t i = 0; cold && i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  Events events(probes_);
  CapturedGraph graph;
  GpuResult result = events.Create();
  if (result.ok()) {
    result =
        Capture(driver_, probes_, order, cell.verify_case->weights_only, events, rounds, &graph);
  }
  if (!result.ok()) return Failure(cell, result);

  const auto replay = [&] {
    const GpuResult launched = graph.Launch();
    const GpuResult finished = driver_->Synchronize();
    return launched.ok() ? finished : launched;
  };
  const auto check = [&] {
    rounds->SpoilAnswers();
    const GpuResult run = replay();
    if (!run.ok()) return Failure(cell, run);
    for (const int32_t round : order) {
      const std::string difference =
          rounds->Difference(round, expected[static_cast<size_t>(round)]);
      if (difference.empty()) continue;
      return absl::InternalError(fmt::format("{}: {}", Describe(cell), difference));
    }
    return absl::OkStatus();
  };

  absl::Status status = check();  // also warms up: the first replay is not timed
  if (!status.ok()) return status;
  const auto num_rounds = static_cast<double>(order.size());
  PairedTimes times;
  status = Repeat({options_.seconds}, [&](size_t) {
    double case_us = 0;
    double base_us = 0;
    GpuResult timed = replay();
    if (timed.ok()) timed = probes_->ElapsedUs(events.start, events.middle, &case_us);
    if (timed.ok()) timed = probes_->ElapsedUs(events.middle, events.end, &base_us);
    times.case_us.push_back(case_us / num_rounds);
    times.base_us.push_back(base_us / num_rounds);
    return timed.ok() ? absl::OkStatus() : Failure(cell, timed);
  });
  if (!status.ok()) return status;
  status = check();  // the timed rounds must still give these answers
  if (!status.ok()) return status;

  double read_bytes = 0;
  for (const int32_t round : order) read_bytes += rounds->read_bytes(round);
  measurement->cold = cold;
  SetTimes(times, measurement);
  measurement->base_gigabytes_per_s = read_bytes / num_rounds / measurement->base_us.median / 1e3;
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

}  // namespace specd::bench
