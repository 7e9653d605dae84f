#include "tests/gpu/ptx/counts/round_counter.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_driver.h"
#include "tests/gpu/ptx/machine/profile.h"
#include "tests/gpu/ptx/runtime/pretended_device.h"
#include "tools/bench/gpu_rounds.h"
#include "tools/bench/probes/cuda_probes.h"
#include "tools/bench/try.h"

namespace specd::ptx {

namespace {

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

bench::LaunchCounts CountsOf(const LaunchProfile& profile) {
  bench::LaunchCounts counts{
      .kernel = ShortName(profile.kernel),
      .num_blocks = profile.num_blocks,
      .threads_per_block = profile.threads_per_block,
      .num_by_class = {},
      .num_idle_lanes = static_cast<int64_t>(profile.num_idle_lanes),
      .asked_bytes = static_cast<int64_t>(profile.asked_bytes),
      .asked_sectors = static_cast<int64_t>(profile.asked_sectors),
      .needed_sectors = static_cast<int64_t>(profile.needed_sectors),
      .asked_row_sectors = static_cast<int64_t>(profile.asked_row_sectors),
      .repeated_row_sectors = static_cast<int64_t>(profile.repeated_row_sectors),
      .num_shared_turns = static_cast<int64_t>(profile.num_shared_turns),
      .num_bank_conflicts = static_cast<int64_t>(profile.num_bank_conflicts),
      .chain_cycles = static_cast<int64_t>(profile.chain_cycles),
      .chain_instructions = static_cast<int64_t>(profile.chain_instructions),
      .chain_functions = {}};
  for (const auto& [name, cycles] : profile.chain_functions) {
    counts.chain_functions[ShortName(name)] += static_cast<int64_t>(cycles);
  }
  for (size_t i = 0; i < kNumOpClasses; ++i) {
    if (profile.num_by_class[i] == 0) continue;
    counts.num_by_class[std::string(NameOf(static_cast<OpClass>(i)))] =
        static_cast<int64_t>(profile.num_by_class[i]);
  }
  return counts;
}

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
                        std::vector<bench::LaunchCounts>* launches) {
  Profiler profiler;
  profiler.SetRows(RowsOf(batch));
  PretendedDevice::Get().SetProfiler(&profiler);
  GpuResult result = run();
  PretendedDevice::Get().SetProfiler(nullptr);
  if (result.ok()) result = driver->Synchronize();
  for (const LaunchProfile& launch : profiler.launches()) launches->push_back(CountsOf(launch));
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

absl::StatusOr<bench::RoundCounts> RoundCounter::Count(const bench::Cell& cell) {
  SPECD_TAKE(auto cpu, MakeBackend("cpu"));
  SPECD_TAKE(const bench::AnsweredCell answered,
             bench::AnswerCell(cell, /*threads=*/1, std::move(cpu), &pools_));
  const bench::RoundSet& set = *answered.set;
  const std::vector<bench::RoundAnswer>& expected = answered.answers;

  bench::GpuRounds rounds(driver_.get(), probes_.get(), set);
  GpuResult result = rounds.Load(expected);
  if (!result.ok()) return Failure(cell, result.text());
  rounds.SpoilAnswers();
  const DType dtype = set.target().dtype;
  bench::RoundCounts counts{
      .case_name = std::string(cell.verify_case->name),
      .dtype = std::string(bench::DTypeName(dtype)),
      .arch = PretendedDevice::Get().arch(),
      .num_processors = PretendedDevice::Get().num_processors(),
      .batch = cell.shape.batch,
      .draft = cell.shape.draft,
      .vocab_size = cell.vocab_size,
      .num_elements = static_cast<int64_t>(rounds.read_bytes(0)) / SizeBytes(dtype),
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
