// LoadModule makes a PTX text ready to run.
//
//   auto module = LoadModule("round_kernel.ptx", text);
//   const Function* entry = (*module)->FindEntry("RunRoundKernel");
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <string_view>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

// `file` is the name that errors give.
absl::StatusOr<std::unique_ptr<Module>> LoadModule(const std::string& file, std::string_view text);

}  // namespace specd::ptx
