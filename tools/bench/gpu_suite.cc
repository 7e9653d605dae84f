#include "tools/bench/gpu_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/captured_graph.h"
#include "kernels/cuda/cuda_driver.h"
#include "tools/bench/gpu_rounds.h"
#include "tools/bench/round_check.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// Rounds may be far apart: decisions do not need every row.
constexpr int64_t kCachesBetween = 4;

absl::Status StatusOf(const GpuResult& result) {
  if (result.ok()) return absl::OkStatus();
  return absl::InternalError(fmt::format("the device failed: {}", result.text()));
}

// One replay: every round, then a read of every round's rows.
GpuResult Capture(const OpenGpu& gpu, int32_t num_rounds, GpuRounds* rounds, CapturedGraph* graph) {
  return graph->Capture(gpu.driver.get(), [&] {
    GpuResult result = gpu.probes->RecordEvent(0);
    for (int32_t i = 0; i < num_rounds && result.ok(); ++i) result = rounds->LaunchRound(i);
    if (result.ok()) result = gpu.probes->RecordEvent(1);
    for (int32_t i = 0; i < num_rounds && result.ok(); ++i) result = rounds->LaunchRead(i);
    return result.ok() ? gpu.probes->RecordEvent(2) : result;
  });
}

absl::Status Time(const Cell& cell, const std::vector<RoundAnswer>& expected, const OpenGpu& gpu,
                  double seconds, GpuRounds* rounds, Measurement* measurement) {
  CapturedGraph graph;
  SPECD_TRY(StatusOf(Capture(gpu, cell.shape.num_rounds, rounds, &graph)));
  const auto replay = [&] {
    const GpuResult launched = graph.Launch();
    const GpuResult finished = gpu.driver->Synchronize();
    return StatusOf(launched.ok() ? finished : launched);
  };
  const auto check = [&]() -> absl::Status {
    rounds->SpoilAnswers();
    SPECD_TRY(replay());
    for (size_t round = 0; round < expected.size(); ++round) {
      const std::string difference =
          rounds->Difference(static_cast<int32_t>(round), expected[round]);
      if (!difference.empty()) return absl::InternalError(difference);
    }
    return absl::OkStatus();
  };

  SPECD_TRY(check());  // also warms up: the first replay is not timed
  // Adds the time from this event to the next, of a round.
  const auto add = [&](size_t event, Times* times_us) {
    double& time_us = times_us->emplace_back();
    const GpuResult result = gpu.probes->ElapsedUs(event, &time_us);
    time_us /= static_cast<double>(expected.size());
    return StatusOf(result);
  };
  Times base_us;
  std::vector<Side> sides(1);
  sides[0].turn = [&](Times* case_us) -> absl::Status {
    SPECD_TRY(replay());
    SPECD_TRY(add(0, case_us));
    return add(1, &base_us);
  };
  SPECD_TRY(TakeTurns({seconds}, &sides).status());
  SPECD_TRY(check());  // the timed rounds must still give these answers

  measurement->SetTimes(sides[0].times_us, base_us);
  double num_rows = 0;
  for (int32_t i = 0; i < cell.shape.num_rounds; ++i) num_rows += rounds->rows_read(i);
  measurement->SetRows(num_rows / cell.shape.num_rounds);
  if (cell.vocab_size == 128256 && cell.shape.draft == 5 && cell.dtype == DType::kBFloat16) {
    if (cell.shape.batch == 64) measurement->target = cell.verify_case->targets.gpu;
    if (cell.shape.batch == 1) measurement->target_us = cell.verify_case->targets.gpu_us;
  }
  return absl::OkStatus();
}

absl::StatusOr<Measurement> RunCell(const Cell& cell, const Flags& flags, const OpenGpu& gpu,
                                    PoolCache* pools) {
  SPECD_TAKE(auto cpu, MakeBackend("cpu"));
  SPECD_TAKE(AnsweredCell answered, AnswerCell(cell, ThreadsOf(flags), std::move(cpu), pools));
  Measurement& measurement = answered.measurement;
  measurement.threads = 0;
  measurement.ratio_of = kRead;
  for (const RoundAnswer& answer : answered.answers) {
    for (const TaskOutcome& outcome : answer.outcomes) {
      measurement.num_checked += outcome.num_tokens;
    }
  }
  GpuRounds rounds(gpu.driver.get(), gpu.probes.get(), *answered.set);
  SPECD_TRY(StatusOf(rounds.Load(answered.answers)));
  SPECD_TRY(Time(cell, answered.answers, gpu, flags.Real("seconds"), &rounds, &measurement));
  return measurement;
}

absl::Status RunGpu(const Flags& flags, Output* out) {
  SPECD_TAKE(const OpenGpu gpu, OpenFirstGpu(MakeCudaDriver(), MakeCudaProbes));
  out->Begin(gpu.device.name, fmt::format("{}; L2 {:.0f} MiB", gpu.device.name,
                                          static_cast<double>(gpu.device.l2_bytes) / 1048576));
  return MeasureGpu(flags, gpu, out).status();
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

absl::StatusOr<std::vector<Measurement>> MeasureGpu(const Flags& flags, const OpenGpu& gpu,
                                                    Output* out) {
  const int64_t between = kCachesBetween * gpu.device.l2_bytes;
  const auto num_rounds = [between](const Cell& cell) {
    return static_cast<int32_t>((between + cell.round_bytes() - 1) / cell.round_bytes() + 1);
  };
  const auto all = [](const VerifyCase&, DType) { return true; };
  PoolCache pools;
  const auto run = [&](const Cell& cell) { return RunCell(cell, flags, gpu, &pools); };
  return RunCells(CellsOf(flags, GpuCases(), all), out, num_rounds, run);
}

Suite GpuCommand() {
  return {.name = "gpu",
          .summary = "rounds on the first device beside a read of the same rows",
          .cases = WordsOf(GpuCases()),
          .flags = RoundFlags("1,8,32,64,256", "1,64", "1,3,5,8"),
          .run = &RunGpu};
}

}  // namespace specd::bench
