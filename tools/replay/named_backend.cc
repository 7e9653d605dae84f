#include "tools/replay/named_backend.h"

#include <fmt/format.h>

#include "kernels/backend_registry.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/make_cuda_backend.h"
#if defined(SPECD_REPLAY_EMULATION)
#include "tests/gpu/emulation/emulated_backend.h"
#endif

namespace specd::replay {

namespace {

using Made = absl::StatusOr<std::unique_ptr<Backend>>;

Made MakeEmulated() {
#if defined(SPECD_REPLAY_EMULATION)
  return std::make_unique<EmulatedBackend>();
#else
  return absl::UnimplementedError("it is in builds with tests (SPECD_BUILD_TESTS=ON) only");
#endif
}

BackendRegistry& ReplayBackends() {
  static auto* const backends = new BackendRegistry(
      {CpuBackendEntry(),
       {.name = "scalar",
        .make = [](const BackendOptions&) -> Made {
          return std::make_unique<CpuBackend>(CpuTarget::kBaseline);
        }},
       {.name = "emulated", .make = [](const BackendOptions&) { return MakeEmulated(); }},
       CudaBackendEntry(&MakeCudaDriver)});
  return *backends;
}

}  // namespace

std::vector<std::string> BackendsHere() {
  std::vector<std::string> names = ReplayBackends().Names();
  std::erase_if(names, [](const std::string& name) { return !ReplayBackends().Make(name).ok(); });
  return names;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeNamedBackend(std::string_view name) {
  Made made = ReplayBackends().Make(name);
  if (made.ok()) return made;
  return absl::Status(made.status().code(), fmt::format("backend = {}: {}; here are: {}", name,
                                                        std::string(made.status().message()),
                                                        fmt::join(BackendsHere(), ", ")));
}

}  // namespace specd::replay
