#include "tests/gpu/ptx/counts/round_counter.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_driver.h"
#include "tests/gpu/ptx/runtime/pretended_device.h"
#include "tools/bench/gpu_rounds.h"
#include "tools/bench/probes/gpu_probes.h"
#include "tools/bench/try.h"

namespace specd::ptx {

namespace {

std::vector<AddressRange> RowsOf(const RoundBatch& batch) {
  std::vector<AddressRange> ranges;
  for (const TensorView& rows : {batch.target, batch.draft}) {
    const auto begin = reinterpret_cast<uint64_t>(rows.data);
    const int64_t num_elements = rows.num_rows * rows.row_stride;
    ranges.push_back({begin, begin + static_cast<uint64_t>(num_elements * SizeBytes(rows.dtype))});
  }
  return ranges;
}

// The launches that `run` enqueues, and nothing else does. They have ended.
template <typename Run>
GpuResult CountLaunches(const RoundBatch& batch, const Run& run, GpuDriver* driver,
                        std::vector<LaunchProfile>* launches) {
  Profiler profiler;
  profiler.SetRows(RowsOf(batch));
  PretendedDevice::Get().SetProfiler(&profiler);
  GpuResult result = run();
  PretendedDevice::Get().SetProfiler(nullptr);
  if (result.ok()) result = driver->Synchronize();
  *launches = profiler.launches();
  return result;
}

absl::Status Failure(const bench::Cell& cell, const std::string& what) {
  return absl::InternalError(fmt::format("{}: {}", bench::Describe(cell), what));
}

}  // namespace

absl::Status RoundCounter::Open() {
  driver_ = MakeCudaDriver();
  probes_ = bench::MakeCudaProbes(driver_.get());
  GpuResult result = driver_->UseDevice(0);
  if (result.ok()) result = probes_->Load();
  return result.ok() ? absl::OkStatus() : absl::FailedPreconditionError(result.text());
}

absl::StatusOr<RoundCounts> RoundCounter::Count(const bench::Cell& cell) {
  SPECD_TAKE(auto cpu, MakeBackend("cpu"));
  SPECD_TAKE(const bench::AnsweredCell answered,
             bench::AnswerCell(cell, /*threads=*/1, std::move(cpu), &pools_));
  const bench::RoundSet& set = *answered.set;
  const std::vector<bench::RoundAnswer>& expected = answered.answers;

  bench::GpuRounds rounds(driver_.get(), probes_.get(), set);
  GpuResult result = rounds.Load(expected);
  if (!result.ok()) return Failure(cell, result.text());
  rounds.SpoilAnswers();
  RoundCounts counts = {.num_elements = int64_t{rounds.rows_read(0)} * set.target().vocab_size,
                        .round = {},
                        .read = {}};
  bench::RoundAnswer answer = set.MakeAnswer();
  const RoundBatch batch = rounds.Batch(0, &answer);
  result = CountLaunches(
      batch, [&] { return rounds.LaunchRound(0); }, driver_.get(), &counts.round);
  if (!result.ok()) return Failure(cell, result.text());
  std::string difference = rounds.Difference(0, expected[0]);
  if (!difference.empty()) return Failure(cell, difference);
  // A graph launches the same round again: what the first launch counted must be back at 0.
  rounds.SpoilAnswers();
  result = rounds.LaunchRound(0);
  if (result.ok()) result = driver_->Synchronize();
  if (!result.ok()) return Failure(cell, result.text());
  difference = rounds.Difference(0, expected[0]);
  if (!difference.empty()) return Failure(cell, "launched again: " + difference);
  result = CountLaunches(
      batch, [&] { return rounds.LaunchRead(0); }, driver_.get(), &counts.read);
  if (!result.ok()) return Failure(cell, result.text());
  return counts;
}

}  // namespace specd::ptx
