// CoverageOf counts the PTX lines of a module's kernels that have run.
//
// The machine counts the runs of each instruction for the life of the module.
#pragma once

#include <string>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

// A kernel with all functions that it may call.
struct KernelCoverage {
  std::string kernel;
  std::string file;
  size_t num_lines = 0;
  std::vector<int> lines_left;  // that have not run, in order
};

std::vector<KernelCoverage> CoverageOf(const Module& module);

// "round_kernel.ptx RunRoundKernel: 740 of 1163 lines ran; not: 12-15 20".
std::string TextOf(const KernelCoverage& coverage);

}  // namespace specd::ptx
