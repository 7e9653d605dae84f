// DieAsEngine and Require end the process of a test's engine with a line that says why.
//
// Any thread may call.
#pragma once

#include <string>

#include "kernels/core/gpu_result.h"

namespace specd {

inline constexpr int kEngineFailed = 1;
inline constexpr int kEngineSkips = 77;
inline constexpr char kNoStreamWaits[] = "CUDA streams of this device have no memory operations";

[[noreturn]] void DieAsEngine(const std::string& what, int status = kEngineFailed);
void Require(bool is_so, const std::string& otherwise);
void Require(const GpuResult& result, const char* what);

}  // namespace specd
