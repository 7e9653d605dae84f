// CpuTarget: the instruction sets that the CPU bodies are compiled for, one object file each.
// Plain data.
#pragma once

namespace specd {

enum class CpuTarget {
  kBaseline,  // every processor of the build's architecture
  kAvx2,      // with FMA, F16C, BMI and BMI2
  kAvx512,    // F, BW, DQ and VL besides
};

}  // namespace specd
