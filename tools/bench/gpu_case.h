// GpuCases lists the cases of `specd-bench gpu`: those whose times on a device the design predicts.
//
// Constant data, safe from any thread.
#pragma once

#include <span>

#include "tools/bench/verify_case.h"

namespace specd::bench {

std::span<const VerifyCase> GpuCases();

// Null if no case has that name.
const VerifyCase* FindGpuCase(std::string_view name);

}  // namespace specd::bench
