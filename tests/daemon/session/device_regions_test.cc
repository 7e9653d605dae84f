// Engines of another process register device memory over the socket. The tests check the
// registrations that a daemon with a device accepts, those that a daemon without one refuses, and
// the state after an engine's death.
#include "daemon/session/device_regions.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "daemon/server/verify_loop.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/sockets/unix_socket.h"
#include "kernels/cuda/driver_platform.h"
#include "tests/daemon/server/server_fixture.h"
#include "tests/daemon/session/device_fixture.h"
#include "tests/support/open_fds.h"

namespace specd {
namespace {

using test::SeenPlatform;
using test::SpecOf;

constexpr uint64_t kBytes = test::kDeviceBytes;

PeerRequest AttachTo(const test::ServerFixture& server) {
  PeerRequest request{.op = PeerOp::kAttach};
  server.uri.substr(5).copy(request.path, sizeof(request.path) - 1);
  return request;
}

// A daemon's control thread over a session with a device, and an engine in a process of its own.
struct Attached {
  Attached() {
    SessionOptions options = server.session.session->options();
    options.importer = &importer;
    server.session.Attach(options, std::make_unique<ScriptedBackend>());
    REQUIRE(engine.Call(AttachTo(server)).code == SPECD_OK);
  }

  uint64_t Allocate(GpuMemoryKind kind = GpuMemoryKind::kIpc) {
    const PeerReply made =
        engine.Call({.op = PeerOp::kAllocate, .kind = kind, .size_bytes = kBytes});
    REQUIRE(made.code == kGpuOk);
    return made.address;
  }
  PeerReply Register(uint64_t address, uint64_t size_bytes = kBytes) {
    return engine.Call({.op = PeerOp::kRegister, .address = address, .size_bytes = size_bytes});
  }
  int32_t Unregister(uint64_t region) {
    return engine.Call({.op = PeerOp::kUnregister, .value = region}).code;
  }
  // The bytes at these places of a region, read through the device.
  std::string Text(uint64_t region, const std::vector<uint64_t>& places) {
    const auto found = session().device_regions().Find(static_cast<uint32_t>(region));
    REQUIRE(found.has_value());
    GpuStream stream;
    REQUIRE(platform.gpu->CreateStream(&stream).ok());
    std::string text(places.size(), ' ');
    for (size_t i = 0; i < places.size(); ++i) {
      REQUIRE(places[i] < found->memory.size_bytes);
      const char* const from = static_cast<const char*>(found->memory.data) + places[i];
      REQUIRE(platform.gpu->Copy(stream, &text[i], from, 1).ok());
    }
    REQUIRE(platform.gpu->Synchronize(stream).ok());
    return text;
  }
  Session& session() { return *server.session.session; }

  SeenPlatform platform;
  DeviceImporter importer{&platform, [](std::string_view) {}};
  test::ServerFixture server;
  GpuPeer engine;
};

TEST_SUITE("process") {
  TEST_CASE("device memory: registered, unregistered with an answer, and only then freed") {
    Attached attached;
    for (const GpuMemoryKind kind :
         {GpuMemoryKind::kIpc, GpuMemoryKind::kVmm, GpuMemoryKind::kPool}) {
      CAPTURE(static_cast<int>(kind));
      const uint64_t address = attached.Allocate(kind);
      const PeerReply region = attached.Register(address);
      REQUIRE(region.code == SPECD_OK);
      CHECK(attached.session()
                .device_regions()
                .Find(static_cast<uint32_t>(region.value))
                .has_value());
      CHECK(attached.platform.gpu->num_imports() == 1);
      CHECK(attached.Unregister(region.value) == SPECD_OK);
      CHECK(attached.platform.gpu->num_imports() == 0);
      CHECK(attached.engine.Call({.op = PeerOp::kFree, .address = address}).code == kGpuOk);
      CHECK(attached.engine.Call({.op = PeerOp::kCountViolations}).value == 0);
      // Its number no longer names a region.
      CHECK(attached.Unregister(region.value) == SPECD_ERROR_NOT_FOUND);
      CHECK(attached.Register(attached.Allocate(kind)).value > region.value);
      CHECK(attached.Unregister(region.value + 1) == SPECD_OK);
    }
  }

  TEST_CASE("device memory: tensors over several pieces, which share some of them") {
    Attached attached;
    const uint64_t address = attached.engine
                                 .Call({.op = PeerOp::kAllocate,
                                        .kind = GpuMemoryKind::kVmm,
                                        .size_bytes = 5 * kBytes,
                                        .piece_bytes = 2 * kBytes})
                                 .address;
    REQUIRE(address != 0);
    for (uint64_t piece = 0; piece < 3; ++piece) {
      attached.engine.Call({.op = PeerOp::kFill,
                            .address = address + piece * 2 * kBytes,
                            .size_bytes = piece < 2 ? 2 * kBytes : kBytes,
                            .value = 'a' + piece});
    }
    // The control thread opens nothing until an engine asks.
    const int fds_before = CountOpenFds();
    const PeerReply all = attached.Register(address, 5 * kBytes);
    REQUIRE(all.code == SPECD_OK);
    // One region from the middle of the first piece to the second, and one from there to the end.
    const PeerReply begin = attached.Register(address + kBytes, 2 * kBytes);
    const PeerReply end = attached.Register(address + 3 * kBytes, 2 * kBytes);
    REQUIRE(begin.code == SPECD_OK);
    REQUIRE(end.code == SPECD_OK);
    CHECK(attached.platform.gpu->num_imports() == 3);
    CHECK(attached.Text(all.value, {0, 2 * kBytes - 1, 2 * kBytes, 4 * kBytes, 5 * kBytes - 1}) ==
          "aabcc");
    CHECK(attached.Text(begin.value, {0, kBytes - 1, kBytes, 2 * kBytes - 1}) == "aabb");
    CHECK(attached.Text(end.value, {0, kBytes - 1, kBytes, 2 * kBytes - 1}) == "bbcc");
    CHECK(attached.Unregister(all.value) == SPECD_OK);
    CHECK(attached.engine.Call({.op = PeerOp::kFree, .address = address}).code == kGpuOk);
    CHECK(attached.Text(begin.value, {0, kBytes}) == "ab");
    CHECK(attached.Unregister(begin.value) == SPECD_OK);
    CHECK(attached.Unregister(end.value) == SPECD_OK);
    CHECK(attached.platform.gpu->num_imports() == 0);
    CHECK(attached.platform.gpu->violations().empty());
    CHECK(CountOpenFds() == fds_before);
  }

  TEST_CASE("device memory: as many pieces as travel with a message, and one more") {
    Attached attached;
    const uint64_t num_bytes = (kMessageFdsMax + 1) * kBytes;
    const uint64_t address = attached.engine
                                 .Call({.op = PeerOp::kAllocate,
                                        .kind = GpuMemoryKind::kVmm,
                                        .size_bytes = num_bytes,
                                        .piece_bytes = kBytes})
                                 .address;
    REQUIRE(address != 0);
    attached.engine.Call(
        {.op = PeerOp::kFill, .address = address + num_bytes - 1, .size_bytes = 1, .value = 'z'});
    const int fds_before = CountOpenFds();
    CHECK(attached.Register(address, num_bytes).code == SPECD_ERROR_REGION);
    const PeerReply most = attached.Register(address + kBytes, num_bytes - kBytes);
    REQUIRE(most.code == SPECD_OK);
    CHECK(attached.Text(most.value, {num_bytes - kBytes - 1}) == "z");
    CHECK(attached.Unregister(most.value) == SPECD_OK);
    CHECK(CountOpenFds() == fds_before);
  }

  TEST_CASE("device memory: a hundred engines that crash leave no mapping and no descriptor") {
    Attached attached;
    attached.engine.Kill();  // the server has one place
    while (!attached.session().ended()) std::this_thread::yield();
    int fds_before = 0;
    for (int crash = 0; crash < 100; ++crash) {
      if (crash == 1) fds_before = CountOpenFds();
      GpuPeer engine;
      const SessionOptions options = attached.session().options();
      attached.server.session.Attach(options, std::make_unique<ScriptedBackend>());
      REQUIRE(engine.Call(AttachTo(attached.server)).code == SPECD_OK);
      for (const GpuMemoryKind kind : {GpuMemoryKind::kIpc, GpuMemoryKind::kVmm}) {
        const PeerReply made =
            engine.Call({.op = PeerOp::kAllocate, .kind = kind, .size_bytes = kBytes});
        REQUIRE(
            engine.Call({.op = PeerOp::kRegister, .address = made.address, .size_bytes = kBytes})
                .code == SPECD_OK);
      }
      CHECK(attached.platform.num_imports() == 2);
      engine.Kill();
      while (!attached.session().ended()) std::this_thread::yield();
      while (attached.platform.num_imports() != 0) std::this_thread::yield();
    }
    // The control thread closes the last connection.
    while (CountOpenFds() > fds_before) std::this_thread::yield();
    CHECK(attached.platform.gpu->violations().empty());
  }

  TEST_CASE("device memory: freed and allocated again under its region") {
    Attached attached;
    const uint64_t address = attached.Allocate();
    const PeerReply old = attached.Register(address);
    REQUIRE(old.code == SPECD_OK);
    attached.engine.Call({.op = PeerOp::kFree, .address = address});
    REQUIRE(attached.Allocate() == address);
    CHECK(attached.Register(address).code == SPECD_ERROR_STATE);
    CHECK(attached.Unregister(old.value) == SPECD_OK);
    CHECK(attached.Register(address).code == SPECD_OK);
  }

  TEST_CASE("device memory: sixteen regions, and not one more") {
    Attached attached;
    const uint64_t address = attached.Allocate();
    for (int i = 0; i < 16; ++i) REQUIRE(attached.Register(address).code == SPECD_OK);
    CHECK(attached.platform.gpu->num_imports() == 1);  // of one allocation
    CHECK(attached.Register(address).code == SPECD_ERROR_EXHAUSTED);
    CHECK(attached.Unregister(DeviceRegions::kFirstId) == SPECD_OK);
    CHECK(attached.Register(address).code == SPECD_OK);
  }

  TEST_CASE("device memory: rows in it are refused by name, and so are regions of the CPU") {
    Attached attached;
    const PeerReply region = attached.Register(attached.Allocate());
    REQUIRE(region.code == SPECD_OK);
    TensorSpec spec;
    spec.num_rows = 1;
    const absl::Status bound =
        attached.session().Bind(TensorRole::kTargetRows, static_cast<uint32_t>(region.value), spec);
    CHECK(ErrorCodeOf(bound) == SPECD_ERROR_UNSUPPORTED);
    CHECK(ErrorFieldOf(bound) == "region");
    // The fixture's own rows lie in region 1.
    CHECK(attached.session().Bind(TensorRole::kTargetRows, 1, spec).ok());
    CHECK(attached.Unregister(2) == SPECD_ERROR_NOT_FOUND);
  }

  TEST_CASE("device memory: one allocation is described in one way") {
    // Tested on a table alone: the engine's library would never send these requests.
    SeenPlatform platform;
    DeviceImporter importer(&platform, [](std::string_view) {});
    DeviceRegions regions(&importer);
    GpuPeer peer;
    const DeviceRegionSpec spec = SpecOf(peer);
    REQUIRE(regions.Register(spec, {}, peer.pid()).ok());
    DeviceRegionSpec other = spec;
    other.base_bytes = kBytes / 2;
    other.size_bytes = 16;
    const absl::Status size = regions.Register(other, {}, peer.pid()).status();
    CHECK(ErrorCodeOf(size) == SPECD_ERROR_STATE);
    CHECK(ErrorFieldOf(size) == "buffer_id");
    other = spec;
    other.kind = 3;
    CHECK(ErrorCodeOf(regions.Register(other, {}, peer.pid()).status()) == SPECD_ERROR_STATE);
    other = spec;
    ++other.buffer_id;
    CHECK(ErrorCodeOf(regions.Register(other, {}, peer.pid()).status()) == SPECD_ERROR_STATE);
    CHECK(platform.gpu->num_imports() == 1);
    regions.Close();
    CHECK(platform.gpu->num_imports() == 0);
    CHECK(ErrorCodeOf(regions.Register(spec, {}, peer.pid()).status()) == SPECD_ERROR_STATE);
  }

  TEST_CASE(
      "device memory: an engine that breaks its rings has it unmapped by the control thread") {
    // The driver takes its time, and the verify thread serves other engines meanwhile.
    SeenPlatform platform;
    DeviceImporter importer(&platform, [](std::string_view) {});
    SessionFixture broken;
    SessionOptions options = broken.session->options();
    options.importer = &importer;
    broken.Attach(options, std::make_unique<ScriptedBackend>());
    GpuPeer peer;
    REQUIRE(broken.session->device_regions().Register(SpecOf(peer), {}, peer.pid()).ok());
    SessionList list;
    list.Add(broken.session);
    int faults = 0;
    VerifyLoop loop(&list, {0, [](std::string_view) {}, [&](Session&, ChannelFault) { ++faults; }});
    broken.segment->submission_entries()[0].sequence.store(99);
    CHECK_FALSE(loop.Step());
    CHECK(faults == 1);
    CHECK(broken.session->ended());
    CHECK(platform.gpu->num_imports() == 1);
    CHECK_FALSE(broken.session->EndAll());  // as the control thread drops the connection
    CHECK(platform.gpu->num_imports() == 0);
  }

  TEST_CASE("device memory: a daemon on the CPU refuses it, and the engine goes on") {
    test::ServerFixture server;
    GpuPeer engine;
    REQUIRE(engine.Call(AttachTo(server)).code == SPECD_OK);
    const PeerReply made = engine.Call({.op = PeerOp::kAllocate, .size_bytes = kBytes});
    for (int i = 0; i < 2; ++i) {
      CHECK(engine.Call({.op = PeerOp::kRegister, .address = made.address, .size_bytes = kBytes})
                .code == SPECD_ERROR_UNSUPPORTED);
    }
  }
}

TEST_SUITE("unit") {
  TEST_CASE("device memory: embedded, the engine's own is not imported") {
    SessionFixture fixture;
    DeviceRegionSpec spec;
    spec.kind = 1;
    const absl::Status status =
        fixture.session->device_regions().Register(spec, {}, getpid()).status();
    CHECK(ErrorCodeOf(status) == SPECD_ERROR_UNSUPPORTED);
    CHECK(ErrorFieldOf(status) == "kind");
  }

  TEST_CASE("device memory: the same binary runs where there is no driver, and names the remedy") {
    const std::unique_ptr<GpuPlatform> platform = MakeCudaPlatform();
    DeviceImporter importer(platform.get(), [](std::string_view) {});
    DeviceRegionSpec spec;
    spec.kind = 1;
    spec.device_uuid = FakeGpuOptions().devices[0].uuid;
    const absl::Status status = importer.Import(spec, {}, getpid()).status();
    std::vector<GpuDevice> devices;
    if (platform->ListDevices(&devices).code() == kGpuNoDriver) {
      CHECK(ErrorCodeOf(status) == SPECD_ERROR_UNSUPPORTED);
      CHECK(std::string(status.message()).find("install the NVIDIA driver") != std::string::npos);
    } else {
      CHECK(ErrorFieldOf(status) == "device_uuid");  // no device has that one
    }
  }
}

}  // namespace
}  // namespace specd
