// Device memory of another process, imported: what is accepted, and what is said to every input
// that is not. The peer is a real process over the pretended GPU of tests/support.
#include "ipc/memory/device_region.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/memory/device_export.h"
#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/support/gpu_peer.h"

namespace specd {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kBaseBytes = 2 * kMiB;
constexpr uint64_t kFill = 0x6b;

// Hands out the context that the test looks into.
class OnePlatform final : public GpuPlatform {
 public:
  explicit OnePlatform(FakeGpuOptions options = {}) : options_(std::move(options)) {}
  GpuResult ListDevices(std::vector<GpuDevice>* devices) override {
    return FakeGpuPlatform(options_).ListDevices(devices);
  }
  GpuResult OpenContext(size_t device_index, std::unique_ptr<GpuContext>* context) override {
    auto made = std::make_unique<FakeGpuContext>(options_, device_index);
    ++num_contexts;
    gpu = made.get();
    *context = std::move(made);
    return GpuResult::Ok();
  }
  FakeGpuContext* gpu = nullptr;
  int num_contexts = 0;

 private:
  const FakeGpuOptions options_;
};

// Fails the first time, when it has listed one device already.
class HalfListedPlatform final : public GpuPlatform {
 public:
  GpuResult ListDevices(std::vector<GpuDevice>* devices) override {
    const GpuResult result = FakeGpuPlatform().ListDevices(devices);
    if (++num_asked_ > 1) return result;
    devices->resize(1);
    return GpuResult::Error("cuDeviceGetUuid", kGpuUnknown);
  }
  GpuResult OpenContext(size_t device_index, std::unique_ptr<GpuContext>* context) override {
    return FakeGpuPlatform().OpenContext(device_index, context);
  }

 private:
  int num_asked_ = 0;
};

std::string Hex(const GpuHandle& handle) {
  std::string text;
  for (const uint8_t byte : handle) text += fmt::format("{:02x}", byte);
  return text;
}

// The peer's memory as an engine would describe it, and an importer.
struct Offer {
  explicit Offer(GpuMemoryKind kind = GpuMemoryKind::kIpc, size_t device_index = 0)
      : peer(device_index) {
    const PeerReply made =
        peer.Call({.op = PeerOp::kAllocate, .kind = kind, .size_bytes = kBaseBytes});
    address = made.address;
    peer.Call({.op = PeerOp::kFill, .address = address, .size_bytes = kBaseBytes, .value = kFill});
    Describe(kind);
  }

  void Describe(GpuMemoryKind kind) {
    UniqueFd fd;
    const PeerReply exported =
        peer.Call({.op = PeerOp::kExport, .kind = kind, .address = address}, -1, &fd);
    REQUIRE(exported.code == kGpuOk);
    fds.clear();
    if (fd.valid()) fds.push_back(std::move(fd));
    spec = {.kind = static_cast<uint32_t>(kind),
            .device_uuid = FakeGpuOptions().devices[0].uuid,
            .handle = kind == GpuMemoryKind::kVmm ? "" : Hex(exported.handle),
            .base_bytes = kBaseBytes,
            .offset_bytes = 4096,
            .size_bytes = 8192,
            .buffer_id = exported.buffer_id,
            .export_pid = static_cast<uint32_t>(peer.pid())};
    if (kind == GpuMemoryKind::kVmm) spec.piece_bytes = {kBaseBytes};
  }

  absl::StatusOr<DeviceRegion> Import() { return importer.Import(spec, fds, peer.pid()); }
  absl::StatusOr<DeviceRegion> Import(const DeviceRegionSpec& other) {
    return importer.Import(other, fds, peer.pid());
  }

  // Through the device, as the CPU must not look.
  unsigned char FirstByte(const DeviceRegion& region) {
    GpuStream stream;
    REQUIRE(platform.gpu->CreateStream(&stream).ok());
    unsigned char byte = 0;
    REQUIRE(platform.gpu->Copy(stream, &byte, region.memory().data, 1).ok());
    REQUIRE(platform.gpu->Synchronize(stream).ok());
    return byte;
  }

  OnePlatform platform;
  std::vector<std::string> failures;  // as they were told, each why
  DeviceImporter importer{&platform, [this](std::string_view why) { failures.emplace_back(why); }};
  GpuPeer peer;
  uint64_t address = 0;
  std::vector<UniqueFd> fds;
  DeviceRegionSpec spec;
};

std::vector<UniqueFd> OwnersOf(const std::vector<int>& fds) {
  std::vector<UniqueFd> owners;
  for (const int fd : fds) owners.emplace_back(fd);
  return owners;
}

void CheckRefused(const absl::StatusOr<DeviceRegion>& region, int code, const std::string& field,
                  const std::string& part) {
  REQUIRE_FALSE(region.ok());
  const std::string text(region.status().message());
  CAPTURE(text);
  CHECK(ErrorCodeOf(region.status()) == code);
  CHECK(ErrorFieldOf(region.status()) == field);
  CHECK(text.find(part) != std::string::npos);
}

TEST_SUITE("process") {
  TEST_CASE("device region: every kind is mapped, read, and closed again") {
    for (const GpuMemoryKind kind :
         {GpuMemoryKind::kIpc, GpuMemoryKind::kVmm, GpuMemoryKind::kPool}) {
      CAPTURE(static_cast<int>(kind));
      Offer offer(kind);
      // Only where the region begins is there another byte.
      offer.peer.Call(
          {.op = PeerOp::kFill, .address = offer.address + 4096, .size_bytes = 1, .value = 0x77});
      absl::StatusOr<DeviceRegion> region = offer.Import();
      REQUIRE(region.ok());
      CHECK(region->memory().size_bytes == 8192);
      CHECK(offer.FirstByte(*region) == 0x77);
      CHECK(offer.platform.gpu->num_imports() == 1);
      CHECK(region->Close().ok());
      CHECK(offer.platform.gpu->num_imports() == 0);
      CHECK(region->Close().ok());  // again: nothing happens
      // A closed region may be freed.
      CHECK(offer.peer.Call({.op = PeerOp::kFree, .address = offer.address}).code == kGpuOk);
      CHECK(offer.peer.Call({.op = PeerOp::kCountViolations}).value == 0);
      CHECK(offer.platform.gpu->violations().empty());
    }
  }

  TEST_CASE("device region: two regions of one allocation, and the end of the one of them") {
    Offer offer;
    absl::StatusOr<DeviceRegion> first = offer.Import();
    DeviceRegionSpec next = offer.spec;
    next.offset_bytes = kBaseBytes - 16;
    next.size_bytes = 16;
    absl::StatusOr<DeviceRegion> second = offer.Import(next);
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    CHECK(static_cast<const char*>(second->memory().data) -
              static_cast<const char*>(first->memory().data) ==
          kBaseBytes - 16 - 4096);
    CHECK(first->Close().ok());
    CHECK(offer.FirstByte(*second) == kFill);
    CHECK(offer.platform.num_contexts == 1);
    { const DeviceRegion gone = *std::move(second); }
    CHECK(offer.platform.gpu->num_imports() == 0);
  }

  TEST_CASE("device region: rows in it, with the bounds of any region") {
    Offer offer;
    const absl::StatusOr<DeviceRegion> region = offer.Import();
    REQUIRE(region.ok());
    TensorSpec rows;
    rows.num_rows = 2;
    const absl::StatusOr<TensorView> view = BindTensor(region->memory(), rows, 1024);
    REQUIRE(view.ok());
    CHECK(view->data == region->memory().data);
    rows.num_rows = 3;
    CHECK(ErrorCodeOf(BindTensor(region->memory(), rows, 1024).status()) == SPECD_ERROR_REGION);
  }

  TEST_CASE("device region: what is wrong is said by field, and nothing stays mapped") {
    struct Bad {
      std::function<void(DeviceRegionSpec&)> change;
      int code;
      const char* field;
      const char* part;
    };
    const uint64_t huge = ~uint64_t{0};
    const Bad bads[] = {
        {[](auto& s) { s.kind = 0; }, SPECD_ERROR_INVALID_ARGUMENT, "kind", "kind = 0"},
        {[](auto& s) { s.kind = 4; }, SPECD_ERROR_INVALID_ARGUMENT, "kind", "kind = 4"},
        // The handle's kind is on the wire; another one is not tried.
        {[](auto& s) { s.kind = 2; }, SPECD_ERROR_INVALID_ARGUMENT, "handle", "kind = 2 has 0"},
        {[](auto& s) { s.kind = 3; }, SPECD_ERROR_INVALID_ARGUMENT, "num_fds", "1 descriptors"},
        {[](auto& s) { s.piece_bytes = {kBaseBytes}; }, SPECD_ERROR_INVALID_ARGUMENT, "piece_bytes",
         "kind = 1 has none"},
        // A15: 63 and 65 bytes, and 64 that mean nothing.
        {[](auto& s) { s.handle.resize(126); }, SPECD_ERROR_INVALID_ARGUMENT, "handle", "126"},
        {[](auto& s) { s.handle += "00"; }, SPECD_ERROR_INVALID_ARGUMENT, "handle", "130"},
        {[](auto& s) { s.handle[5] = 'g'; }, SPECD_ERROR_INVALID_ARGUMENT, "handle", "character 5"},
        {[](auto& s) { s.handle.assign(128, 'a'); }, SPECD_ERROR_REGION, "handle", "opens no"},
        // A16, and a process in another namespace.
        {[](auto& s) { s.export_pid = 1; }, SPECD_ERROR_REGION, "export_pid", "--pid=host"},
        // A17: the right ordinal with the wrong UUID, no UUID at all.
        {[](auto& s) { s.device_uuid.back() = '7'; }, SPECD_ERROR_REGION, "device_uuid",
         "GPU-11111111-1111-1111-1111-111111111111"},
        {[](auto& s) { s.device_uuid = "0"; }, SPECD_ERROR_INVALID_ARGUMENT, "device_uuid", "32"},
        {[](auto& s) { s.device_uuid = ""; }, SPECD_ERROR_INVALID_ARGUMENT, "device_uuid", "32"},
        {[](auto& s) { s.device_uuid = FakeGpuOptions().devices[1].uuid; }, SPECD_ERROR_REGION,
         "device_uuid", "another device"},
        // A4, A5: what wraps is out of bounds.
        {[](auto& s) { s.base_bytes = 0; }, SPECD_ERROR_INVALID_ARGUMENT, "base_bytes", "1.."},
        {[=](auto& s) { s.base_bytes = huge; }, SPECD_ERROR_INVALID_ARGUMENT, "base_bytes", "1.."},
        {[=](auto& s) { s.offset_bytes = huge - 15; }, SPECD_ERROR_INVALID_ARGUMENT, "offset_bytes",
         "0..2097151"},
        {[](auto& s) { s.offset_bytes = kBaseBytes; }, SPECD_ERROR_INVALID_ARGUMENT, "offset_bytes",
         "0..2097151"},
        {[](auto& s) { s.offset_bytes = 4104; }, SPECD_ERROR_INVALID_ARGUMENT, "offset_bytes",
         "multiple of 16"},
        {[](auto& s) { s.size_bytes = 0; }, SPECD_ERROR_INVALID_ARGUMENT, "size_bytes",
         "1..2093056"},
        {[](auto& s) { s.size_bytes = kBaseBytes - 4095; }, SPECD_ERROR_INVALID_ARGUMENT,
         "size_bytes", "1..2093056"},
        {[=](auto& s) { s.size_bytes = huge - 4095; }, SPECD_ERROR_INVALID_ARGUMENT, "size_bytes",
         "1..2093056"},
        // Larger than the memory of the handle.
        {[](auto& s) { s.base_bytes = kBaseBytes + 1; }, SPECD_ERROR_REGION, "base_bytes",
         "has 2097152 bytes"},
        {[](auto& s) { s.buffer_id = 0; }, SPECD_ERROR_INVALID_ARGUMENT, "buffer_id", "0"},
    };
    Offer offer;
    REQUIRE(offer.Import().ok());
    for (const Bad& bad : bads) {
      DeviceRegionSpec spec = offer.spec;
      bad.change(spec);
      CheckRefused(offer.Import(spec), bad.code, bad.field, bad.part);
      CHECK(offer.platform.gpu->num_imports() == 0);
    }
    CHECK(offer.Import().ok());
    CHECK(offer.failures.empty());
  }

  TEST_CASE("device region: a UUID is its digits, however it is written") {
    Offer offer;
    for (const char* uuid :
         {"00000000-0000-0000-0000-000000000000", "00000000000000000000000000000000",
          "MIG-00000000-0000-0000-0000-000000000000"}) {
      offer.spec.device_uuid = uuid;
      CHECK(offer.Import().ok());
    }
  }

  TEST_CASE(
      "device region: a list of devices that failed half way is asked for again, as a whole") {
    Offer offer;
    HalfListedPlatform platform;
    DeviceImporter importer(&platform, [](std::string_view) {});
    const pid_t pid = offer.peer.pid();
    CheckRefused(importer.Import(offer.spec, {}, pid), SPECD_ERROR_UNSUPPORTED, "kind",
                 "cuDeviceGetUuid");
    CHECK(importer.Import(offer.spec, {}, pid).ok());
    offer.spec.device_uuid = FakeGpuOptions().devices[1].uuid;
    // Found; that the memory lies on the other device is another matter.
    const absl::StatusOr<DeviceRegion> other = importer.Import(offer.spec, {}, pid);
    CHECK(std::string(other.status().message()).find("is not visible") == std::string::npos);
  }

  TEST_CASE("device region: a descriptor that is no memory, none, or one too many") {
    Offer offer(GpuMemoryKind::kVmm);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const std::vector<UniqueFd> no_memory = OwnersOf({ends[0]});
    const UniqueFd writer(ends[1]);
    const pid_t pid = offer.peer.pid();
    CheckRefused(offer.importer.Import(offer.spec, no_memory, pid), SPECD_ERROR_REGION, "fd",
                 "opens no memory");
    CheckRefused(offer.importer.Import(offer.spec, {}, pid), SPECD_ERROR_INVALID_ARGUMENT,
                 "num_fds", "0 came");
    DeviceRegionSpec large = offer.spec;
    large.base_bytes = 2 * kBaseBytes;
    large.piece_bytes = {2 * kBaseBytes};
    CheckRefused(offer.Import(large), SPECD_ERROR_REGION, "fd", "with the sizes as said");
    // Descriptors work from another namespace, where the engine has no process id.
    CHECK(offer.importer.Import(offer.spec, offer.fds, 0).ok());

    Offer handle;
    CheckRefused(handle.importer.Import(handle.spec, offer.fds, handle.peer.pid()),
                 SPECD_ERROR_INVALID_ARGUMENT, "num_fds", "1 came");
    CheckRefused(handle.importer.Import(handle.spec, {}, 0), SPECD_ERROR_REGION, "export_pid",
                 "namespace");
  }

  TEST_CASE("device region: our own memory is not imported (A16)") {
    OnePlatform platform;
    DeviceImporter importer(&platform, [](std::string_view) {});
    FakeGpuContext own(FakeGpuOptions(), 0);
    GpuAddress address = 0;
    REQUIRE(own.Allocate(kBaseBytes, &address).ok());
    const absl::StatusOr<DeviceExport> exported =
        ExportDeviceMemory(own, FakeGpuOptions().devices, address, kBaseBytes);
    REQUIRE(exported.ok());
    CheckRefused(importer.Import(exported->spec, exported->fds, getpid()), SPECD_ERROR_REGION,
                 "export_pid", "embedded");
  }

  TEST_CASE("device region: freed memory, a dead exporter, an address used again") {
    Offer offer;
    absl::StatusOr<DeviceRegion> region = offer.Import();
    REQUIRE(region.ok());
    const DeviceRegionSpec old = offer.spec;
    // The engine frees without asking, and gets the address again.
    CHECK(offer.peer.Call({.op = PeerOp::kFree, .address = offer.address}).code == kGpuOk);
    CHECK(offer.peer.Call({.op = PeerOp::kAllocate, .size_bytes = kBaseBytes}).address ==
          offer.address);
    offer.Describe(GpuMemoryKind::kIpc);
    CHECK(offer.spec.buffer_id != old.buffer_id);
    CheckRefused(offer.Import(), SPECD_ERROR_STATE, "handle", "unregister");
    CHECK(region->Close().ok());
    CHECK(offer.Import().ok());
    CheckRefused(offer.Import(old), SPECD_ERROR_REGION, "handle", "still there");
    offer.peer.Kill();
    CheckRefused(offer.importer.Import(offer.spec, {}, static_cast<pid_t>(offer.spec.export_pid)),
                 SPECD_ERROR_REGION, "handle", "still there");
  }

  TEST_CASE("device region: what the driver answers, at each call in turn") {
    Offer offer;
    REQUIRE(offer.Import().ok());
    const auto import_with = [&](const FakeGpuFault& fault) {
      offer.platform.gpu->Inject(fault);
      return offer.Import();
    };
    CheckRefused(import_with({"Import", 0, kGpuOutOfMemory}), SPECD_ERROR_EXHAUSTED, "handle",
                 "unregister");
    CheckRefused(import_with({"Import", 0, kGpuTooManyPeers}), SPECD_ERROR_EXHAUSTED, "handle",
                 "unregister");
    CheckRefused(import_with({"Import", 0, kGpuAlreadyMapped}), SPECD_ERROR_STATE, "handle",
                 "unregister");
    CheckRefused(import_with({"Import", 0, kGpuNotSupported}), SPECD_ERROR_UNSUPPORTED, "kind",
                 "cudaMalloc");
    CheckRefused(import_with({"Import", 0, kGpuUnknown}), SPECD_ERROR_REGION, "handle", "opens");
    CHECK(offer.failures.empty());
    CHECK(offer.platform.gpu->num_imports() == 0);
    // One that could not be closed says so, and is not closed twice.
    absl::StatusOr<DeviceRegion> region = offer.Import();
    REQUIRE(region.ok());
    offer.platform.gpu->Inject({"Close", 0, kGpuUnknown});
    CHECK(ErrorCodeOf(region->Close()) == SPECD_ERROR_INTERNAL);
    CHECK(region->Close().ok());
    // Health is asked for after the import too: a broken context is not an attach that worked.
    CheckRefused(import_with({"Check", 0, kGpuIllegalAddress, true}), SPECD_ERROR_INTERNAL, "",
                 "restarted");
    // The daemon's log has the driver's words, as the engine that asked for the import has.
    REQUIRE(offer.failures.size() == 1);
    const std::string why = offer.platform.gpu->Check().text();
    CHECK(offer.failures[0] == why);
    CheckRefused(offer.Import(), SPECD_ERROR_INTERNAL, "", why);
    CheckRefused(offer.Import(), SPECD_ERROR_INTERNAL, "", "restarted");
  }

  TEST_CASE("device region: without a driver nothing is imported, and the reason is the driver's") {
    Offer offer;
    OnePlatform none({.has_driver = false});
    DeviceImporter importer(&none, [](std::string_view) {});
    CheckRefused(importer.Import(offer.spec, offer.fds, offer.peer.pid()), SPECD_ERROR_UNSUPPORTED,
                 "kind", "libcuda.so.1");
    OnePlatform empty({.devices = {}});
    DeviceImporter blind(&empty, [](std::string_view) {});
    CheckRefused(blind.Import(offer.spec, offer.fds, offer.peer.pid()), SPECD_ERROR_REGION,
                 "device_uuid", "no device");
  }
}

}  // namespace
}  // namespace specd
