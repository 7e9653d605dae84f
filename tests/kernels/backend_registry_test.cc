#include "kernels/backend_registry.h"

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"

namespace specd {
namespace {

BackendEntry Named(std::string name) {
  BackendEntry entry = CpuBackendEntry();
  entry.name = std::move(name);
  return entry;
}

bool Has(const absl::Status& status, absl::StatusCode code, const char* part) {
  CAPTURE(std::string(status.message()));
  return status.code() == code && std::string(status.message()).find(part) != std::string::npos;
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST_SUITE("unit") {
  TEST_CASE("registry: a backend from outside stands beside those of specd") {
    BackendRegistry registry({CpuBackendEntry()});
    REQUIRE(registry.Register(Named("mine-2_b")).ok());
    CHECK(registry.Names() == std::vector<std::string>{"cpu", "mine-2_b"});
    CHECK((*registry.Find("mine-2_b"))->name == "mine-2_b");
    CHECK((*registry.Make("mine-2_b"))->name() == "cpu");  // the entry makes that one
  }

  TEST_CASE("registry: names that are refused") {
    BackendRegistry registry({CpuBackendEntry()});
    for (const char* const name : {"", "cuda:1", ":", "Mine", "a b", "a/b"}) {
      CHECK(Has(registry.Register(Named(name)), kInvalid, "name = \""));
    }
    CHECK(registry.Register(Named(std::string(32, 'a'))).ok());
    CHECK(Has(registry.Register(Named(std::string(33, 'a'))), kInvalid, "1 .. 32"));
    CHECK(Has(registry.Register({.name = "hollow"}), kInvalid, "make"));
    const absl::Status twice = registry.Register(Named("cpu"));
    CHECK(Has(twice, absl::StatusCode::kAlreadyExists, "\"cpu\" is registered already"));
    CHECK(registry.Names() == std::vector<std::string>{"cpu", std::string(32, 'a')});
  }

  TEST_CASE("registry: it takes backends after others were made") {
    BackendRegistry registry({CpuBackendEntry()});
    REQUIRE(registry.Make("cpu").ok());
    const BackendEntry* const cpu = *registry.Find("cpu");
    REQUIRE(registry.Register(Named("late")).ok());
    CHECK(registry.Make("late").ok());
    CHECK(*registry.Find("cpu") == cpu);
  }

  TEST_CASE("registry: bug: an exception of a backend's factory ended the process") {
    BackendEntry entry = Named("mine");
    entry.make = [](const BackendOptions&) -> absl::StatusOr<std::unique_ptr<Backend>> {
      throw std::runtime_error("no card");
    };
    BackendRegistry registry({entry});
    const absl::Status status = registry.Make("mine").status();
    CHECK(Has(status, absl::StatusCode::kInternal, "backend \"mine\" threw an exception"));
    CHECK(Has(status, absl::StatusCode::kInternal, "no card"));
  }

  TEST_CASE("registry: a device has one full name") {
    BackendEntry cards = Named("cards");
    cards.has_devices = true;
    BackendRegistry registry({CpuBackendEntry(), cards});
    CHECK(*registry.FullName("cpu") == "cpu");
    for (const char* const device : {"cards", "cards:0", "cards:00"}) {
      CHECK(*registry.FullName(device) == "cards:0");
    }
    CHECK(*registry.FullName("cards:12") == "cards:12");
    CHECK(Has(registry.FullName("tpu").status(), kInvalid, "the backends are"));
    CHECK(Has(registry.FullName("cpu:0").status(), kInvalid, "one device only"));
  }

  TEST_CASE("registry: devices that no backend has") {
    BackendRegistry registry({CpuBackendEntry(), Named("mine")});
    CHECK(Has(registry.Make("tpu").status(), kInvalid, "the backends are \"cpu\", \"mine\""));
    CHECK(Has(registry.Make("").status(), kInvalid, "backend \"\" is unknown"));
    CHECK(Has(registry.Make("cpu:0").status(), kInvalid, "one device only; write \"cpu\""));
    for (const char* const device : {"cuda:", "cuda:x", "cuda:-1", "cuda:256", "cuda:1:2"}) {
      CHECK(Has(registry.Make(device).status(), kInvalid, "0 .. 255"));
    }
    int stream = 0;
    CHECK(Has(registry.Make("mine", {.cuda_stream = &stream}).status(), kInvalid, "cuda_stream"));
    BackendEntry silent = Named("silent");
    silent.make = [](const BackendOptions&) { return std::unique_ptr<Backend>(); };
    REQUIRE(registry.Register(silent).ok());
    CHECK(Has(registry.Make("silent").status(), absl::StatusCode::kInternal, "\"silent\""));
  }

  TEST_CASE("registry: a factory gets the index that the device names, and no other") {
    std::optional<uint32_t> index;
    BackendEntry entry = Named("cards");
    entry.has_devices = true;
    entry.make = [&index](const BackendOptions& options) {
      index = options.device_index;
      return MakeCpuBackend();
    };
    BackendRegistry registry({entry});
    REQUIRE(registry.Make("cards:7").ok());
    CHECK(index == 7);
    REQUIRE(registry.Make("cards", {.device_index = 3}).ok());
    CHECK(index == std::nullopt);
  }

  TEST_CASE("registry: cuda by index") {
    FakeGpu gpu;
    gpu.devices.resize(3);
    gpu.devices[2].uuid = "GPU-2";
    BackendRegistry registry(
        {CudaBackendEntry([&gpu] { return std::make_unique<FakeGpuDriver>(&gpu); })});
    const auto third = registry.Make("cuda:2");
    REQUIRE(third.ok());
    CHECK(gpu.used_device == 2);
    CHECK((*third)->device_uuid() == "GPU-2");
    CHECK(Has(registry.Make("cuda:3").status(), absl::StatusCode::kNotFound, "devices 0 .. 2"));

    int stream = 0;
    gpu.stream_device = 1;
    REQUIRE(registry.Make("cuda", {.cuda_stream = &stream}).ok());
    CHECK(gpu.used_device == 1);
    REQUIRE(registry.Make("cuda:1", {.cuda_stream = &stream}).ok());
    const auto elsewhere = registry.Make("cuda:2", {.cuda_stream = &stream});
    CHECK(Has(elsewhere.status(), kInvalid, "cuda_stream is of device 1"));
  }

  TEST_CASE("registry: a build without nvcc says so") {
    BackendRegistry registry({CudaBackendEntry([] { return nullptr; })});
    CHECK(Has(registry.Make("cuda").status(), absl::StatusCode::kUnimplemented, "nvcc"));
  }

  TEST_CASE("registry: the process has cpu and cuda") {
    CHECK(ProcessBackends().Find("cpu").ok());
    CHECK((*ProcessBackends().Find("cuda:1"))->takes_cuda_stream);
    CHECK_FALSE((*ProcessBackends().Find("cpu"))->takes_cuda_stream);
  }
}

}  // namespace
}  // namespace specd
