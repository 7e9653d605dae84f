// The mixed rounds hold every kind of task for tests of CudaBackend, which compare a fake device
// with the CPU.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cuda/run_backend.h"
#include "tests/support/round_case.h"

namespace specd {

inline constexpr RoundCase::Options kMixed{.vocab_size = 2500,
                                           .batch = 24,
                                           .max_draft = 3,
                                           .dtype = DType::kFloat16,
                                           .seed = 51,
                                           .grammar_masks = true};
inline constexpr BackendLimits kLimits{.vocab_size = 2500, .max_batch = 24, .max_draft = 3};

inline std::vector<std::string> ExpectedFor(const RoundCase::Options& options) {
  RoundCase round(options);
  CpuBackend cpu(CpuTarget::kBaseline);
  REQUIRE(cpu.Prepare({options.vocab_size, options.batch, options.max_draft}).ok());
  return RunAll(cpu, round);
}

// One comparison for each sequence, so a failure shows the first difference and not all of them.
inline void CheckEqual(const std::vector<std::string>& answers,
                       const std::vector<std::string>& expected) {
  REQUIRE(answers.size() == expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    CAPTURE(i);
    REQUIRE(answers[i] == expected[i]);
  }
}

}  // namespace specd
