// Device memory that lies on several pieces of physical memory, imported from another process: all
// of it reads rightly. Any other list of descriptors is refused by name and leaves nothing.
// PyTorch's expandable segments look like this, with pieces of 20 MiB.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/memory/device_region.h"
#include "ipc/sockets/unix_socket.h"
#include "tests/gpu/driver/borrowed_gpu_platform.h"
#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/open_fds.h"

namespace specd {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
const std::vector<uint64_t> kPieceBytes = {4 * kMiB, 4 * kMiB, 2 * kMiB};
constexpr uint64_t kBaseBytes = 10 * kMiB;

// Every byte says which piece it is of; the region leaves out the beginning of the first piece and
// the end of the last.
struct Offer {
  Offer() {
    address = peer.Call({.op = PeerOp::kAllocate,
                         .kind = GpuMemoryKind::kVmm,
                         .size_bytes = kBaseBytes,
                         .piece_bytes = kPieceBytes[0]})
                  .address;
    spec = {.kind = 2,
            .device_uuid = FakeGpuOptions().devices[0].uuid,
            .handle = {},
            .base_bytes = kBaseBytes,
            .offset_bytes = kMiB,
            .size_bytes = kBaseBytes - 2 * kMiB,
            .export_pid = static_cast<uint32_t>(peer.pid()),
            .piece_bytes = kPieceBytes};
    uint64_t there = address;
    for (const uint64_t size_bytes : kPieceBytes) {
      const uint64_t value = 0x61 + fds.size();
      peer.Call({.op = PeerOp::kFill, .address = there, .size_bytes = size_bytes, .value = value});
      const PeerReply exported =
          peer.Call({.op = PeerOp::kExport, .kind = GpuMemoryKind::kVmm, .address = there}, -1,
                    &fds.emplace_back());
      REQUIRE(exported.code == kGpuOk);
      if (there == address) spec.buffer_id = exported.buffer_id;
      there += size_bytes;
    }
  }

  absl::StatusOr<DeviceRegion> Import() { return importer.Import(spec, fds, 0); }

  // Through the device, as the CPU must not look.
  char ByteAt(const DeviceRegion& region, uint64_t offset_bytes) {
    char byte = 0;
    GpuStream stream;
    REQUIRE(gpu.CreateStream(&stream).ok());
    REQUIRE(
        gpu.Copy(stream, &byte, static_cast<const char*>(region.memory().data) + offset_bytes, 1)
            .ok());
    REQUIRE(gpu.Synchronize(stream).ok());
    return byte;
  }

  FakeGpuContext gpu{FakeGpuOptions(), 0};
  BorrowedGpuPlatform platform{&gpu};
  DeviceImporter importer{&platform, [](std::string_view) {}};
  GpuPeer peer;
  uint64_t address = 0;
  std::vector<UniqueFd> fds;
  DeviceRegionSpec spec;
};

TEST_SUITE("process") {
  TEST_CASE("device pieces: one region over all of them, whatever becomes of the exporter") {
    Offer offer;
    const int fds_before = CountOpenFds();
    absl::StatusOr<DeviceRegion> region = offer.Import();
    REQUIRE(region.ok());
    CHECK(region->memory().size_bytes == 8 * kMiB);
    CHECK(offer.gpu.num_imports() == 1);
    const auto check_bytes = [&] {
      CHECK(offer.ByteAt(*region, 0) == 'a');
      CHECK(offer.ByteAt(*region, 3 * kMiB - 1) == 'a');
      CHECK(offer.ByteAt(*region, 3 * kMiB) == 'b');
      CHECK(offer.ByteAt(*region, 7 * kMiB - 1) == 'b');
      CHECK(offer.ByteAt(*region, 7 * kMiB) == 'c');
      CHECK(offer.ByteAt(*region, 8 * kMiB - 1) == 'c');
    };
    check_bytes();
    // The exporter's bytes, not copies of them.
    for (const uint64_t seam_bytes : {4 * kMiB, 8 * kMiB}) {
      offer.peer.Call({.op = PeerOp::kFill,
                       .address = offer.address + seam_bytes - 1,
                       .size_bytes = 2,
                       .value = 'z'});
      CHECK(offer.ByteAt(*region, seam_bytes - kMiB - 1) == 'z');
      CHECK(offer.ByteAt(*region, seam_bytes - kMiB) == 'z');
      offer.peer.Call({.op = PeerOp::kFill,
                       .address = offer.address + seam_bytes - 1,
                       .size_bytes = 1,
                       .value = seam_bytes == 4 * kMiB ? uint64_t{'a'} : 'b'});
      offer.peer.Call({.op = PeerOp::kFill,
                       .address = offer.address + seam_bytes,
                       .size_bytes = 1,
                       .value = seam_bytes == 4 * kMiB ? uint64_t{'b'} : 'c'});
    }
    CHECK(offer.peer.Call({.op = PeerOp::kFree, .address = offer.address}).code == kGpuOk);
    CHECK(offer.peer.Call({.op = PeerOp::kCountViolations}).value == 0);
    check_bytes();
    offer.peer.Kill();
    check_bytes();
    CHECK(offer.gpu.violations().empty());
    CHECK(region->Close().ok());
    CHECK(offer.gpu.num_imports() == 0);
    CHECK(CountOpenFds() == fds_before);
  }

  TEST_CASE("device pieces: as many as a message carries") {
    Offer offer;
    const int fds_before = CountOpenFds();
    // One piece again and again: that is the engine's affair.
    for (size_t i = 3; i < kMessageFdsMax; ++i) {
      offer.fds.emplace_back(fcntl(offer.fds[i % 2].get(), F_DUPFD_CLOEXEC, 0));
      offer.spec.piece_bytes.push_back(2 * kMiB);
    }
    offer.spec.base_bytes += (kMessageFdsMax - 3) * 2 * kMiB;
    offer.spec.offset_bytes = 0;
    offer.spec.size_bytes = offer.spec.base_bytes;
    absl::StatusOr<DeviceRegion> region = offer.Import();
    REQUIRE(region.ok());
    CHECK(offer.ByteAt(*region, 10 * kMiB) == 'b');
    CHECK(offer.ByteAt(*region, 12 * kMiB) == 'a');
    CHECK(offer.ByteAt(*region, offer.spec.size_bytes - 1) == 'b');
    CHECK(region->Close().ok());
    offer.fds.resize(3);
    CHECK(CountOpenFds() == fds_before);
  }

  TEST_CASE("device pieces: a list that is wrong is refused by name, and nothing stays behind") {
    struct Bad {
      std::function<void(Offer&)> change;
      int code;
      const char* field;
      const char* part;
    };
    constexpr int kInvalid = SPECD_ERROR_INVALID_ARGUMENT;
    const Bad bads[] = {
        // Fewer descriptors than sizes, more, none.
        {[](Offer& o) { o.fds.pop_back(); }, kInvalid, "num_fds", "3 descriptors, 2 came"},
        {[](Offer& o) { o.fds.emplace_back(fcntl(o.fds[0].get(), F_DUPFD_CLOEXEC, 0)); }, kInvalid,
         "num_fds", "3 descriptors, 4 came"},
        {[](Offer& o) { o.fds.clear(); }, kInvalid, "num_fds", "3 descriptors, 0 came"},
        // No sizes, and more than any message has.
        {[](Offer& o) { o.spec.piece_bytes.clear(); }, kInvalid, "piece_bytes", "1..250"},
        {[](Offer& o) { o.spec.piece_bytes.assign(251, 2 * kMiB); }, kInvalid, "piece_bytes",
         "251 elements, allowed are 1..250"},
        // Sizes that are none, or not the device's.
        {[](Offer& o) { o.spec.piece_bytes[1] = 0; }, kInvalid, "piece_bytes",
         "piece_bytes[1] = 0: allowed are multiples of 2097152"},
        {[](Offer& o) {
           o.spec.piece_bytes = {4 * kMiB - 1, 4 * kMiB, 2 * kMiB + 1};
         },
         kInvalid, "piece_bytes", "piece_bytes[0] = 4194303"},
        {[](Offer& o) { o.spec.piece_bytes[2] = kMiB; }, kInvalid, "piece_bytes",
         "piece_bytes[2] = 1048576"},
        // Sizes that do not add up, and some that do once they have wrapped.
        {[](Offer& o) { o.spec.base_bytes += 2 * kMiB; }, kInvalid, "base_bytes",
         "base_bytes = 12582912 but the 3 piece_bytes are 10485760"},
        {[](Offer& o) { o.spec.base_bytes = 8 * kMiB; }, kInvalid, "base_bytes", "their sum"},
        {[](Offer& o) {
           o.spec.piece_bytes = {4 * kMiB, ~uint64_t{0} - 2 * kMiB + 1, 8 * kMiB};
         },
         kInvalid, "piece_bytes", "piece_bytes[1]"},
        {[](Offer& o) {
           o.spec.piece_bytes = {kRegionBytesMax, 2 * kMiB, 2 * kMiB};
           o.spec.base_bytes = kRegionBytesMax + 4 * kMiB;
         },
         kInvalid, "piece_bytes", "piece_bytes[1]"},
        // A region that ends after its pieces.
        {[](Offer& o) { o.spec.size_bytes = 9 * kMiB + 1; }, kInvalid, "size_bytes", "1..9437184"},
        // More than a descriptor has: sizes that add up, of the wrong pieces.
        {[](Offer& o) {
           o.spec.piece_bytes = {4 * kMiB, 2 * kMiB, 4 * kMiB};
         },
         SPECD_ERROR_REGION, "fd", "with the sizes as said"},
        // The first, the second, the last descriptor names something else.
        {[](Offer& o) { o.fds[0].Reset(memfd_create("none", MFD_CLOEXEC)); }, SPECD_ERROR_REGION,
         "fd", "opens no memory"},
        {[](Offer& o) { o.fds[1].Reset(open("/dev/null", O_RDWR | O_CLOEXEC)); },
         SPECD_ERROR_REGION, "fd", "opens no memory"},
        {[](Offer& o) {
           const GpuMemoryKind kind = GpuMemoryKind::kPool;
           const PeerReply made =
               o.peer.Call({.op = PeerOp::kAllocate, .kind = kind, .size_bytes = 2 * kMiB});
           o.peer.Call({.op = PeerOp::kExport, .kind = kind, .address = made.address}, -1,
                       &o.fds[2]);
         },
         SPECD_ERROR_REGION, "fd", "opens no memory"},
        {[](Offer& o) {
           o.gpu.Inject({"Import", 0, kGpuOutOfMemory});
         },
         SPECD_ERROR_EXHAUSTED, "fd", "unregister"},
    };
    for (const Bad& bad : bads) {
      CAPTURE(bad.part);
      Offer offer;
      bad.change(offer);
      const int fds_before = CountOpenFds();
      const absl::Status status = offer.Import().status();
      const std::string text(status.message());
      CAPTURE(text);
      CHECK(ErrorCodeOf(status) == bad.code);
      CHECK(ErrorFieldOf(status) == bad.field);
      CHECK(text.find(bad.part) != std::string::npos);
      CHECK(offer.gpu.num_imports() == 0);
      CHECK(CountOpenFds() == fds_before);
    }
  }

  TEST_CASE("device pieces: memory of another device, and a device that has none") {
    Offer offer;
    const int fds_before = CountOpenFds();
    GpuPeer other(1);
    const PeerReply made =
        other.Call({.op = PeerOp::kAllocate, .kind = GpuMemoryKind::kVmm, .size_bytes = 2 * kMiB});
    UniqueFd own = std::exchange(offer.fds[2], UniqueFd());
    other.Call({.op = PeerOp::kExport, .kind = GpuMemoryKind::kVmm, .address = made.address}, -1,
               &offer.fds[2]);
    const absl::Status elsewhere = offer.Import().status();
    CHECK(ErrorFieldOf(elsewhere) == "device_uuid");
    CHECK(offer.gpu.num_imports() == 0);
    offer.fds[2] = std::move(own);
    CHECK(CountOpenFds() == fds_before + 1);  // of the other peer's socket

    FakeGpuOptions options;
    options.devices[0].granularity_bytes = 0;
    FakeGpuPlatform platform(options);
    DeviceImporter importer(&platform, [](std::string_view) {});
    const absl::Status none = importer.Import(offer.spec, offer.fds, 0).status();
    CHECK(ErrorCodeOf(none) == SPECD_ERROR_UNSUPPORTED);
    CHECK(ErrorFieldOf(none) == "kind");
  }
}

}  // namespace
}  // namespace specd
