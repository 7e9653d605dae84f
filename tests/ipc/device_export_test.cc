// An engine's own device memory, described for another process, or refused where it can be changed.
#include "ipc/device_export.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "ipc/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/fake_gpu_context.h"
#include "tests/support/gpu_peer.h"

namespace specd {
namespace {

constexpr uint64_t kBaseBytes = uint64_t{2} << 20;

TEST_SUITE("process") {
  TEST_CASE("device export: an address in the middle travels with what lies before it") {
    FakeGpuContext own(FakeGpuOptions(), 0);
    const std::vector<GpuDevice> devices = FakeGpuOptions().devices;
    GpuPeer daemon;
    const auto check = [&](GpuAddress base) {
      const absl::StatusOr<DeviceExport> exported =
          ExportDeviceMemory(own, devices, base + 4096 + 6, 100);
      REQUIRE(exported.ok());
      const DeviceRegionSpec& spec = exported->spec;
      CHECK(spec.base_bytes == kBaseBytes);
      CHECK(spec.offset_bytes == 4096);
      CHECK(exported->skip_bytes == 6);
      CHECK(spec.size_bytes == 106);
      CHECK(spec.device_uuid == devices[0].uuid);
      CHECK(spec.export_pid == static_cast<uint32_t>(getpid()));
      CHECK(exported->fd.valid() == (spec.kind != 1));
      CHECK(spec.handle.size() == (spec.kind == 2 ? 0 : 128));
      CHECK(CheckStillAllocated(own, spec, base + 4096).ok());
      GpuHandle handle = {};
      for (size_t i = 0; i < spec.handle.size() / 2; ++i) {
        handle[i] = static_cast<uint8_t>(std::stoi(spec.handle.substr(2 * i, 2), nullptr, 16));
      }
      CHECK(daemon
                .Call({.op = PeerOp::kImport,
                       .kind = static_cast<GpuMemoryKind>(spec.kind),
                       .size_bytes = spec.base_bytes,
                       .handle = handle},
                      exported->fd.get())
                .code == kGpuOk);
      return spec;
    };
    GpuAddress ipc = 0;
    GpuAddress vmm = 0;
    GpuAddress pool = 0;
    REQUIRE(own.Allocate(kBaseBytes, &ipc).ok());
    REQUIRE(own.AllocateVmm(kBaseBytes, &vmm).ok());
    REQUIRE(own.AllocateFromPool(kBaseBytes, &pool).ok());
    const DeviceRegionSpec spec = check(ipc);
    CHECK(spec.kind == 1);
    CHECK(check(vmm).kind == 2);
    CHECK(check(pool).kind == 3);

    // The daemon still has it open, but this is about our own side: freed, and allocated again.
    REQUIRE(own.Free(ipc).ok());
    CHECK(ErrorFieldOf(CheckStillAllocated(own, spec, ipc)) == "buffer_id");
    GpuAddress again = 0;
    REQUIRE(own.Allocate(kBaseBytes, &again).ok());
    REQUIRE(again == ipc);
    CHECK(ErrorFieldOf(CheckStillAllocated(own, spec, ipc)) == "buffer_id");
  }
}

TEST_SUITE("unit") {
  TEST_CASE("device export: what cannot travel is refused where it can be changed") {
    FakeGpuContext own(FakeGpuOptions(), 1);
    const std::vector<GpuDevice> devices = FakeGpuOptions().devices;
    GpuAddress none = 0;
    GpuAddress good = 0;
    REQUIRE(own.AllocateUnshareable(4096, &none).ok());
    REQUIRE(own.Allocate(4096, &good).ok());
    const auto refusal = [&](GpuAddress address, uint64_t size_bytes) {
      return ExportDeviceMemory(own, devices, address, size_bytes).status();
    };
    CHECK(ErrorCodeOf(refusal(none, 16)) == SPECD_ERROR_UNSUPPORTED);
    CHECK(ErrorFieldOf(refusal(none, 16)) == "address");
    int on_the_host = 0;
    CHECK(ErrorFieldOf(refusal(reinterpret_cast<uintptr_t>(&on_the_host), 4)) == "address");
    CHECK(ErrorFieldOf(refusal(good, 0)) == "size_bytes");
    CHECK(ErrorFieldOf(refusal(good + 96, 4001)) == "size_bytes");
    CHECK(ErrorFieldOf(refusal(good + 96, ~uint64_t{0})) == "size_bytes");
    const absl::StatusOr<DeviceExport> whole = ExportDeviceMemory(own, devices, good + 96, 4000);
    REQUIRE(whole.ok());
    CHECK(whole->spec.device_uuid == devices[1].uuid);
    own.Inject({"Export", 0, kGpuOutOfMemory});
    CHECK(ErrorFieldOf(refusal(good, 16)) == "address");
  }
}

}  // namespace
}  // namespace specd
