#include "kernels/backend_plugin.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace specd {
namespace {

bool Has(const absl::Status& status, absl::StatusCode code, const char* part) {
  CAPTURE(std::string(status.message()));
  return status.code() == code && std::string(status.message()).find(part) != std::string::npos;
}

TEST_SUITE("unit") {
  TEST_CASE("plugin: a backend from outside runs a round as the CPU does") {
    BackendRegistry registry({CpuBackendEntry()});
    REQUIRE(LoadBackendPlugin(SPECD_COUNTING_PLUGIN, &registry).ok());
    CHECK(registry.Names() == std::vector<std::string>{"cpu", "counting"});
    const auto backend = registry.Make("counting");
    REQUIRE(backend.ok());
    CHECK((*backend)->name() == "counting");
    CHECK((*backend)->device_uuid().empty());
    // The functions that the plugin does not have are those of Backend, linked into the plugin.
    CHECK((*backend)->EnqueueStaged(nullptr, 1).code() == absl::StatusCode::kUnimplemented);
  }

  TEST_CASE("plugin: what is refused") {
    BackendRegistry registry({CpuBackendEntry()});
    CHECK(Has(LoadBackendPlugin("counting.so", &registry), absl::StatusCode::kInvalidArgument,
              "\"counting.so\" has no absolute path"));
    CHECK(Has(LoadBackendPlugin("/nowhere/mine.so", &registry), absl::StatusCode::kNotFound,
              "/nowhere/mine.so cannot be loaded"));
    CHECK(Has(LoadBackendPlugin(SPECD_NO_ENTRY_PLUGIN, &registry),
              absl::StatusCode::kInvalidArgument, "it lacks specd_register_backends"));
    const absl::Status other = LoadBackendPlugin(SPECD_OTHER_ABI_PLUGIN, &registry);
    CHECK(Has(other, absl::StatusCode::kUnimplemented, "GNU 4.8.0, headers 0123456789ab"));
    CHECK(Has(other, absl::StatusCode::kUnimplemented, kBackendAbi));
    const absl::Status taken = LoadBackendPlugin(SPECD_TAKEN_NAME_PLUGIN, &registry);
    CHECK(Has(taken, absl::StatusCode::kAlreadyExists, "\"cpu\" is registered already"));
    CHECK(Has(taken, absl::StatusCode::kAlreadyExists, SPECD_TAKEN_NAME_PLUGIN));
    CHECK(registry.Names() == std::vector<std::string>{"cpu"});
  }

  TEST_CASE("plugin: not twice, and not after a backend was made") {
    BackendRegistry registry({CpuBackendEntry()});
    REQUIRE(LoadBackendPlugin(SPECD_COUNTING_PLUGIN, &registry).ok());
    CHECK(Has(LoadBackendPlugin(SPECD_COUNTING_PLUGIN, &registry), absl::StatusCode::kAlreadyExists,
              "counting"));
    BackendRegistry used({CpuBackendEntry()});
    REQUIRE(used.Make("cpu").ok());
    CHECK(Has(LoadBackendPlugin(SPECD_COUNTING_PLUGIN, &used),
              absl::StatusCode::kFailedPrecondition, "comes too late"));
  }
}

}  // namespace
}  // namespace specd
