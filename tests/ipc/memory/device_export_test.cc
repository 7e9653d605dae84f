// An engine's own device memory, described for another process, or refused where it can be changed.
#include "ipc/memory/device_export.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/sockets/unix_socket.h"
#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/open_fds.h"

namespace specd {
namespace {

constexpr uint64_t kBaseBytes = uint64_t{2} << 20;
constexpr uint64_t kPiece = kBaseBytes;

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
      CHECK(exported->fds.size() == (spec.kind == 1 ? 0 : 1));
      CHECK(spec.handle.size() == (spec.kind == 2 ? 0 : 128));
      GpuHandle handle = {};
      for (size_t i = 0; i < spec.handle.size() / 2; ++i) {
        handle[i] = static_cast<uint8_t>(std::stoi(spec.handle.substr(2 * i, 2), nullptr, 16));
      }
      CHECK(daemon
                .Call({.op = PeerOp::kImport,
                       .kind = static_cast<GpuMemoryKind>(spec.kind),
                       .size_bytes = spec.base_bytes,
                       .handle = handle},
                      exported->fds.empty() ? -1 : exported->fds[0].get())
                .code == kGpuOk);
      return spec;
    };
    GpuAddress ipc = 0;
    GpuAddress vmm = 0;
    GpuAddress pool = 0;
    REQUIRE(own.Allocate(kBaseBytes, &ipc).ok());
    REQUIRE(own.AllocateVmm(kBaseBytes, &vmm).ok());
    REQUIRE(own.AllocateFromPool(kBaseBytes, &pool).ok());
    CHECK(check(ipc).kind == 1);
    CHECK(check(vmm).kind == 2);
    CHECK(check(pool).kind == 3);
  }
}

TEST_SUITE("unit") {
  TEST_CASE("device export: a tensor travels as the pieces that it lies on, and no others") {
    FakeGpuContext own(FakeGpuOptions(), 0);
    const std::vector<GpuDevice> devices = FakeGpuOptions().devices;
    GpuAddress base = 0;
    REQUIRE(own.AllocateVmm({2 * kPiece, kPiece, 3 * kPiece, kPiece}, &base).ok());
    struct Range {
      uint64_t offset_bytes;
      uint64_t size_bytes;
      std::vector<uint64_t> piece_bytes;
      uint64_t offset_in_base;
    };
    const Range ranges[] = {
        {0, 7 * kPiece, {2 * kPiece, kPiece, 3 * kPiece, kPiece}, 0},
        // From the middle of the first to the middle of the last.
        {kPiece + 48, 3 * kPiece, {2 * kPiece, kPiece, 3 * kPiece}, kPiece + 48},
        {2 * kPiece - 16, 17, {2 * kPiece, kPiece}, 2 * kPiece - 16},
        // Up to a seam, and from it.
        {2 * kPiece - 16, 16, {2 * kPiece}, 2 * kPiece - 16},
        {2 * kPiece, kPiece, {kPiece}, 0},
        {5 * kPiece, kPiece + 1, {3 * kPiece, kPiece}, 2 * kPiece}};
    for (const Range& range : ranges) {
      CAPTURE(range.offset_bytes);
      const absl::StatusOr<DeviceExport> exported =
          ExportDeviceMemory(own, devices, base + range.offset_bytes, range.size_bytes);
      REQUIRE(exported.ok());
      const DeviceRegionSpec& spec = exported->spec;
      CHECK(spec.kind == 2);
      CHECK(spec.piece_bytes == range.piece_bytes);
      CHECK(spec.offset_bytes == range.offset_in_base);
      CHECK(spec.size_bytes == range.size_bytes);
      uint64_t sum_bytes = 0;
      for (const uint64_t piece : range.piece_bytes) sum_bytes += piece;
      CHECK(spec.base_bytes == sum_bytes);
      CHECK(exported->fds.size() == range.piece_bytes.size());
    }
    const auto buffer_id = [&](uint64_t offset_bytes) {
      return ExportDeviceMemory(own, devices, base + offset_bytes, 1)->spec.buffer_id;
    };
    CHECK(buffer_id(0) == buffer_id(kPiece));
    CHECK(buffer_id(0) != buffer_id(2 * kPiece));
  }

  TEST_CASE("device export: a gap, memory of another kind and too many pieces are refused") {
    FakeGpuContext own(FakeGpuOptions(), 0);
    const std::vector<GpuDevice> devices = FakeGpuOptions().devices;
    GpuAddress base = 0;
    REQUIRE(own.AllocateVmm({kPiece, kPiece, kPiece}, &base).ok());
    const int fds_before = CountOpenFds();
    const auto refusal = [&](uint64_t size_bytes) {
      return ExportDeviceMemory(own, devices, base + 64, size_bytes).status();
    };
    const auto says = [](const absl::Status& status, const char* part) {
      return std::string(status.message()).find(part) != std::string::npos;
    };
    CHECK(refusal(3 * kPiece - 64).ok());
    const absl::Status past_the_end = refusal(3 * kPiece - 63);
    CHECK(ErrorFieldOf(past_the_end) == "size_bytes");
    CHECK(says(past_the_end, "1..6291392"));
    // A driver that fails in the middle leaves no descriptor open.
    own.Inject({"Export", 2, kGpuOutOfMemory});
    CHECK(ErrorFieldOf(refusal(2 * kPiece)) == "address");
    CHECK(CountOpenFds() == fds_before);

    REQUIRE(own.Free(base + kPiece).ok());
    const absl::Status gap = refusal(2 * kPiece);
    CHECK(ErrorCodeOf(gap) == SPECD_ERROR_REGION);
    CHECK(ErrorFieldOf(gap) == "size_bytes");
    CHECK(says(gap, "1..2097088"));
    CHECK(says(gap, "gap"));
    CHECK(refusal(kPiece - 64).ok());
    // Something else in the gap: each takes the address that was freed.
    GpuAddress other = 0;
    REQUIRE(own.Allocate(kPiece, &other).ok());
    REQUIRE(other == base + kPiece);
    CHECK(says(refusal(2 * kPiece), "only pieces from cuMemCreate"));
    REQUIRE(own.Free(other).ok());
    REQUIRE(own.AllocateUnshareable(kPiece, &other).ok());
    REQUIRE(other == base + kPiece);
    const absl::Status unshareable = refusal(2 * kPiece);
    CHECK(ErrorCodeOf(unshareable) == SPECD_ERROR_UNSUPPORTED);
    CHECK(says(unshareable, "2097088 bytes behind the address"));

    REQUIRE(own.AllocateVmm(std::vector<uint64_t>(kMessageFdsMax + 1, kPiece), &base).ok());
    const absl::Status many = refusal(kMessageFdsMax * kPiece);
    CHECK(ErrorFieldOf(many) == "size_bytes");
    CHECK(says(many, "251 pieces"));
    CHECK(says(many, "at most 250"));
    CHECK(says(many, "regions of their own"));
    CHECK(refusal(kMessageFdsMax * kPiece - 64).ok());
  }

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
