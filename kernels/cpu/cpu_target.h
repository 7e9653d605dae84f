// CpuTarget names the instruction sets of the CPU bodies for CpuBackend. Each has an object file of
// its own. Plain data.
#pragma once

namespace specd {

enum class CpuTarget {
  kBaseline,  // every processor of the build's architecture
  kAvx2,      // with FMA, F16C, BMI and BMI2
  kAvx512,    // kAvx2, and F, BW, DQ and VL
};

}  // namespace specd
