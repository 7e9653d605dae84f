// RunSuite runs specd-bench gpu over a fake driver for tests, with small sizes, and returns its
// measurements. It runs on the calling thread.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/tools/fake_gpu_probes.h"
#include "tests/tools/printed_output.h"
#include "tools/bench/gpu_suite.h"

namespace specd::bench {

// Flags of the suite for small rounds, before those that are given.
inline Flags SmallFlags(const std::vector<std::string>& given) {
  // Larger than a tile, and no multiple of a mask's word.
  std::vector<std::string> words = {"--vocab=2500", "--batch=3", "--draft=2", "--threads=1",
                                    "--seconds=0.001"};
  words.insert(words.end(), given.begin(), given.end());
  const absl::StatusOr<Flags> flags = Flags::Read("gpu", TableOf(GpuCommand()), words);
  REQUIRE(flags.ok());
  return *flags;
}

inline absl::StatusOr<OpenGpu> OpenFakeGpu(ProbedGpu* gpu) {
  auto driver = std::make_unique<FakeGpuDriver>(gpu);
  FakeGpuDriver* const fake = driver.get();
  return OpenFirstGpu(std::move(driver),
                      [&](GpuDriver*) { return std::make_unique<FakeGpuProbes>(gpu, fake); });
}

struct SuiteRun {
  absl::Status status;
  std::vector<Measurement> measurements;
  std::string printed;
};

inline SuiteRun RunSuite(const Flags& flags, ProbedGpu* gpu) {
  SuiteRun run;
  const absl::StatusOr<OpenGpu> open = OpenFakeGpu(gpu);
  REQUIRE(open.ok());
  absl::StatusOr<std::vector<Measurement>> measured;
  run.printed = JsonPrinted("gpu", [&](Output* out) { measured = MeasureGpu(flags, *open, out); });
  run.status = measured.status();
  if (measured.ok()) run.measurements = *std::move(measured);
  return run;
}

inline Flags OnlyCase(std::string_view name) {
  return SmallFlags({"--dtype=bf16", "--case=" + std::string(name)});
}

inline bool IsEmpty(const ProbedGpu& gpu) {
  return gpu.allocations.empty() && gpu.pinned.empty() && gpu.graphs.empty();
}

}  // namespace specd::bench
