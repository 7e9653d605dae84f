#include "daemon/session/compile_limits.h"

#include <fmt/format.h>

#include "ipc/base/error.h"

namespace specd {

absl::Status SetCompileMs(int64_t compile_ms, grammar::BudgetLimits* limits) {
  // An opening waits for its compile, and two long compiles run at a time.
  constexpr int64_t kMsMax = 60'000;
  if (compile_ms < 1 || compile_ms > kMsMax) {
    return Invalid("compile_ms",
                   fmt::format("compile_ms = {} is outside 1 .. {}; the default is {}", compile_ms,
                               kMsMax, grammar::kCompileMsDefault));
  }
  limits->cpu_ms = static_cast<uint64_t>(compile_ms);
  return absl::OkStatus();
}

absl::Status SetCompileMib(int64_t compile_mib, grammar::BudgetLimits* limits) {
  constexpr int64_t kMibMin = 16;
  constexpr int64_t kMibMax = 4096;
  if (compile_mib < kMibMin || compile_mib > kMibMax) {
    return Invalid("compile_mib",
                   fmt::format("compile_mib = {} is outside {} .. {}; the default is {}",
                               compile_mib, kMibMin, kMibMax, grammar::kCompileMibDefault));
  }
  limits->bytes = static_cast<uint64_t>(compile_mib) << 20;
  return absl::OkStatus();
}

}  // namespace specd
