// The rules of shared GPU memory that the pretended GPU keeps, between real processes. Each is one
// of CUDA's (<cuda.h> at cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcCloseMemHandle, cuMemMap,
// cuMemPoolImportPointer); the import layer leans on every one of them.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/support/gpu_peer.h"

namespace specd {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Exported {
  PeerReply reply;
  UniqueFd fd;
  GpuImport import(GpuMemoryKind kind) const {
    return {kind, reply.handle, {{fd.get(), reply.size_bytes}}};
  }
};

// Memory of the peer, filled with `value`, and the description that the peer sends.
Exported ExportFrom(GpuPeer& peer, GpuMemoryKind kind, uint64_t size_bytes, uint64_t value,
                    uint64_t offset_bytes = 0) {
  const PeerReply made =
      peer.Call({.op = PeerOp::kAllocate, .kind = kind, .size_bytes = size_bytes});
  REQUIRE(made.code == kGpuOk);
  REQUIRE(peer.Call({.op = PeerOp::kFill,
                     .address = made.address,
                     .size_bytes = size_bytes,
                     .value = value})
              .code == kGpuOk);
  Exported exported;
  exported.reply =
      peer.Call({.op = PeerOp::kExport, .kind = kind, .address = made.address + offset_bytes}, -1,
                &exported.fd);
  REQUIRE(exported.reply.code == kGpuOk);
  CHECK(exported.reply.address == made.address);
  return exported;
}

struct OwnGpu {
  explicit OwnGpu(size_t device_index = 0) : gpu(FakeGpuOptions(), device_index) {
    REQUIRE(gpu.CreateStream(&stream).ok());
  }

  unsigned char ByteAt(GpuAddress address) {
    unsigned char byte = 0;
    const GpuResult copied = gpu.Copy(stream, &byte, reinterpret_cast<void*>(address), 1);
    INFO(copied.text());
    REQUIRE(copied.ok());
    REQUIRE(gpu.Synchronize(stream).ok());
    return byte;
  }

  FakeGpuContext gpu;
  GpuStream stream;
};

TEST_SUITE("process") {
  TEST_CASE("fake gpu: a handle opens the exporter's bytes, at another address") {
    GpuPeer peer;
    OwnGpu own;
    const Exported exported = ExportFrom(peer, GpuMemoryKind::kIpc, 5000, 0x11);
    GpuMapping mapping;
    REQUIRE(own.gpu.Import(exported.import(GpuMemoryKind::kIpc), &mapping).ok());
    CHECK(mapping.size_bytes == 5000);
    CHECK(own.ByteAt(mapping.address) == 0x11);
    CHECK(own.ByteAt(mapping.address + 4999) == 0x11);
    // The same bytes, not a copy of them.
    peer.Call({.op = PeerOp::kFill,
               .address = exported.reply.address,
               .size_bytes = 5000,
               .value = 0x22});
    CHECK(own.ByteAt(mapping.address + 4999) == 0x22);
    CHECK(own.gpu.Close(mapping).ok());
    CHECK(own.gpu.num_imports() == 0);
    CHECK(own.gpu.violations().empty());
  }

  TEST_CASE("fake gpu: the handle of an inner address stands for the whole allocation") {
    GpuPeer peer;
    OwnGpu own;
    const Exported inner = ExportFrom(peer, GpuMemoryKind::kIpc, 8192, 0x33, 4096);
    GpuMapping mapping;
    REQUIRE(own.gpu.Import(inner.import(GpuMemoryKind::kIpc), &mapping).ok());
    CHECK(mapping.size_bytes == 8192);
    GpuAllocation allocation;
    REQUIRE(own.gpu.Describe(mapping.address + 5000, &allocation).ok());
    CHECK(allocation.base == mapping.address);
    // Memory of another process cannot be exported again.
    CHECK_FALSE(allocation.is_ipc_exportable);
    CHECK_FALSE(own.gpu.Describe(mapping.address + 8192, &allocation).ok());
  }

  TEST_CASE("fake gpu: opening twice counts, and closing more often is an error") {
    GpuPeer peer;
    OwnGpu own;
    const Exported exported = ExportFrom(peer, GpuMemoryKind::kIpc, 4096, 1);
    GpuMapping first;
    GpuMapping second;
    REQUIRE(own.gpu.Import(exported.import(GpuMemoryKind::kIpc), &first).ok());
    REQUIRE(own.gpu.Import(exported.import(GpuMemoryKind::kIpc), &second).ok());
    CHECK(first.address == second.address);
    CHECK(own.gpu.num_imports() == 1);
    CHECK(own.gpu.Close(first).ok());
    CHECK(own.ByteAt(second.address) == 1);
    CHECK(own.gpu.Close({.kind = second.kind, .address = second.address + 8}).code() ==
          kGpuInvalidValue);
    CHECK(own.gpu.Close(second).ok());
    CHECK(own.gpu.Close(second).code() == kGpuInvalidValue);
  }

  TEST_CASE("fake gpu: nobody opens their own handle, nor one on another device") {
    GpuPeer peer;
    OwnGpu own;
    GpuAddress address = 0;
    REQUIRE(own.gpu.Allocate(4096, &address).ok());
    GpuExport exported;
    REQUIRE(own.gpu.Export(address, GpuMemoryKind::kIpc, &exported).ok());
    GpuMapping mapping;
    CHECK(own.gpu.Import({exported.kind, exported.handle}, &mapping).code() == kGpuInvalidContext);
    // The peer can.
    CHECK(peer.Call({.op = PeerOp::kImport, .size_bytes = 4096, .handle = exported.handle}).code ==
          kGpuOk);
    GpuPeer elsewhere(1);
    CHECK(elsewhere.Call({.op = PeerOp::kImport, .size_bytes = 4096, .handle = exported.handle})
              .code == kGpuPeerAccessUnsupported);
  }

  TEST_CASE("fake gpu: bytes that are no handle, or no longer one, open nothing") {
    GpuPeer peer;
    OwnGpu own;
    const Exported exported = ExportFrom(peer, GpuMemoryKind::kIpc, 4096, 1);
    GpuMapping mapping;
    for (size_t i = 0; i < 48; ++i) {
      GpuImport broken = exported.import(GpuMemoryKind::kIpc);
      broken.handle[i] ^= 1;
      CHECK(own.gpu.Import(broken, &mapping).code() == kGpuInvalidHandle);
    }
    CHECK(own.gpu.Import({}, &mapping).code() == kGpuInvalidHandle);
    CHECK(peer.Call({.op = PeerOp::kFree, .address = exported.reply.address}).code == kGpuOk);
    CHECK(own.gpu.Import(exported.import(GpuMemoryKind::kIpc), &mapping).code() ==
          kGpuInvalidValue);
    const Exported next = ExportFrom(peer, GpuMemoryKind::kIpc, 4096, 1);
    peer.Kill();
    CHECK(own.gpu.Import(next.import(GpuMemoryKind::kIpc), &mapping).code() == kGpuInvalidValue);
    CHECK(own.gpu.num_imports() == 0);
  }

  TEST_CASE("fake gpu: freed under an importer, memory is poison, and both are told") {
    GpuPeer peer;
    OwnGpu own;
    const Exported exported = ExportFrom(peer, GpuMemoryKind::kIpc, 4096, 1);
    GpuMapping mapping;
    REQUIRE(own.gpu.Import(exported.import(GpuMemoryKind::kIpc), &mapping).ok());
    CHECK(peer.Call({.op = PeerOp::kFree, .address = exported.reply.address}).code == kGpuOk);
    CHECK(peer.Call({.op = PeerOp::kCountViolations}).value == 1);
    CHECK(own.gpu.violations().empty());
    CHECK(own.ByteAt(mapping.address) == FakeGpuBlock::kPoison);
    CHECK(own.gpu.violations().size() == 1);
    // Closed first, the free is in order.
    const Exported orderly = ExportFrom(peer, GpuMemoryKind::kIpc, 12288, 1);
    REQUIRE(own.gpu.Import(orderly.import(GpuMemoryKind::kIpc), &mapping).ok());
    CHECK(own.gpu.Close(mapping).ok());
    CHECK(peer.Call({.op = PeerOp::kFree, .address = orderly.reply.address}).code == kGpuOk);
    CHECK(peer.Call({.op = PeerOp::kCountViolations}).value == 1);
  }

  TEST_CASE("fake gpu: an address that is allocated again is another buffer") {
    GpuPeer peer;
    OwnGpu own;
    const Exported old = ExportFrom(peer, GpuMemoryKind::kIpc, 4096, 1);
    GpuMapping mapping;
    REQUIRE(own.gpu.Import(old.import(GpuMemoryKind::kIpc), &mapping).ok());
    CHECK(peer.Call({.op = PeerOp::kFree, .address = old.reply.address}).code == kGpuOk);
    const Exported again = ExportFrom(peer, GpuMemoryKind::kIpc, 4096, 2);
    CHECK(again.reply.address == old.reply.address);
    CHECK(again.reply.buffer_id != old.reply.buffer_id);
    CHECK(again.reply.handle != old.reply.handle);
    // The mapping that is still open at that address is in the way, as in the driver.
    GpuMapping next;
    CHECK(own.gpu.Import(again.import(GpuMemoryKind::kIpc), &next).code() == kGpuAlreadyMapped);
    CHECK(own.gpu.Close(mapping).ok());
    REQUIRE(own.gpu.Import(again.import(GpuMemoryKind::kIpc), &next).ok());
    CHECK(own.ByteAt(next.address) == 2);
  }

  TEST_CASE("fake gpu: an importer that was killed is no importer") {
    GpuPeer importer;
    OwnGpu own;
    GpuAddress address = 0;
    REQUIRE(own.gpu.Allocate(4096, &address).ok());
    GpuExport exported;
    REQUIRE(own.gpu.Export(address, GpuMemoryKind::kIpc, &exported).ok());
    REQUIRE(importer.Call({.op = PeerOp::kImport, .size_bytes = 4096, .handle = exported.handle})
                .code == kGpuOk);
    importer.Kill();
    CHECK(own.gpu.Free(address).ok());
    CHECK(own.gpu.violations().empty());
  }

  TEST_CASE("fake gpu: memory of a dead exporter is not to be used") {
    GpuPeer peer;
    OwnGpu own;
    const Exported exported = ExportFrom(peer, GpuMemoryKind::kIpc, 4096, 1);
    GpuMapping mapping;
    REQUIRE(own.gpu.Import(exported.import(GpuMemoryKind::kIpc), &mapping).ok());
    own.ByteAt(mapping.address);
    CHECK(own.gpu.violations().empty());
    peer.Kill();
    own.ByteAt(mapping.address);
    CHECK(own.gpu.violations().size() == 1);
    CHECK(own.gpu.Close(mapping).ok());
  }

  TEST_CASE("fake gpu: memory behind a descriptor lives as long as somebody maps it") {
    GpuPeer peer;
    OwnGpu own;
    const Exported exported = ExportFrom(peer, GpuMemoryKind::kVmm, 4 * kMiB, 0x44);
    GpuMapping mapping;
    GpuImport import = exported.import(GpuMemoryKind::kVmm);
    for (const uint64_t size_bytes : {uint64_t{0}, kMiB, 6 * kMiB}) {
      import.pieces[0].size_bytes = size_bytes;
      CHECK(own.gpu.Import(import, &mapping).code() == kGpuInvalidValue);
    }
    import.pieces[0].size_bytes = 2 * kMiB;  // a part, from the beginning
    REQUIRE(own.gpu.Import(import, &mapping).ok());
    CHECK(mapping.size_bytes == 2 * kMiB);
    CHECK(peer.Call({.op = PeerOp::kFree, .address = exported.reply.address}).code == kGpuOk);
    CHECK(own.ByteAt(mapping.address) == 0x44);
    peer.Kill();
    CHECK(own.ByteAt(mapping.address) == 0x44);
    CHECK(own.gpu.violations().empty());
    // A descriptor can be mapped after its exporter's end too, and in the exporter's own process.
    GpuMapping late;
    CHECK(own.gpu.Import(import, &late).ok());
    import.pieces[0].fd = STDIN_FILENO;
    CHECK_FALSE(own.gpu.Import(import, &late).ok());
    import.pieces[0].fd = -1;
    CHECK(own.gpu.Import(import, &late).code() == kGpuInvalidValue);
  }

  TEST_CASE("fake gpu: a pool's memory needs the pool's descriptor and the pointer's bytes") {
    GpuPeer peer;
    GpuPeer other;
    OwnGpu own;
    const Exported exported = ExportFrom(peer, GpuMemoryKind::kPool, 4096, 0x55);
    const Exported foreign = ExportFrom(other, GpuMemoryKind::kPool, 4096, 0x66);
    GpuMapping mapping;
    GpuImport mixed = exported.import(GpuMemoryKind::kPool);
    mixed.handle = foreign.reply.handle;
    CHECK_FALSE(own.gpu.Import(mixed, &mapping).ok());
    REQUIRE(own.gpu.Import(exported.import(GpuMemoryKind::kPool), &mapping).ok());
    CHECK(own.ByteAt(mapping.address) == 0x55);
    // Kinds are not interchangeable.
    CHECK_FALSE(own.gpu.Import(exported.import(GpuMemoryKind::kIpc), &mapping).ok());
    CHECK_FALSE(own.gpu.Import(exported.import(GpuMemoryKind::kVmm), &mapping).ok());
    CHECK(peer.Call({.op = PeerOp::kFree, .address = exported.reply.address}).code == kGpuOk);
    CHECK(peer.Call({.op = PeerOp::kCountViolations}).value == 1);
  }

  TEST_CASE("fake gpu: a driver does not survive fork") {
    OwnGpu own;
    const pid_t child = fork();
    if (child == 0) {
      GpuAddress address = 0;
      _exit(own.gpu.Allocate(4096, &address).code() == kGpuNotInitialized ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_SUITE("unit") {
  TEST_CASE("fake gpu: what was not allocated to be shared says so") {
    OwnGpu own;
    GpuAddress ipc = 0;
    GpuAddress vmm = 0;
    GpuAddress pool = 0;
    GpuAddress none = 0;
    REQUIRE(own.gpu.Allocate(4096, &ipc).ok());
    CHECK(own.gpu.AllocateVmm(4096, &vmm).code() == kGpuInvalidValue);  // no whole piece
    REQUIRE(own.gpu.AllocateVmm(2 * kMiB, &vmm).ok());
    REQUIRE(own.gpu.AllocateFromPool(4096, &pool).ok());
    REQUIRE(own.gpu.AllocateUnshareable(4096, &none).ok());
    const auto kinds = [&](GpuAddress address) {
      GpuAllocation found;
      REQUIRE(own.gpu.Describe(address, &found).ok());
      return std::vector<bool>{found.is_ipc_exportable, found.is_vmm_exportable,
                               found.is_pool_exportable};
    };
    CHECK(kinds(ipc) == std::vector<bool>{true, false, false});
    CHECK(kinds(vmm) == std::vector<bool>{false, true, false});
    CHECK(kinds(pool) == std::vector<bool>{false, false, true});
    CHECK(kinds(none) == std::vector<bool>{false, false, false});
    GpuExport exported;
    for (const GpuMemoryKind kind :
         {GpuMemoryKind::kIpc, GpuMemoryKind::kVmm, GpuMemoryKind::kPool}) {
      CHECK_FALSE(own.gpu.Export(none, kind, &exported).ok());
    }
    CHECK_FALSE(own.gpu.Export(ipc + 4096, GpuMemoryKind::kIpc, &exported).ok());
    CHECK(own.gpu.Allocate(uint64_t{1} << 40, &ipc).code() == kGpuOutOfMemory);
    CHECK(own.gpu.Free(0x1000).code() == kGpuInvalidValue);
  }

  TEST_CASE("fake gpu: any call can be made to fail, once or for good") {
    OwnGpu own;
    GpuAddress address = 0;
    own.gpu.Inject({.call = "Allocate", .after = 1, .code = kGpuOutOfMemory});
    CHECK(own.gpu.Allocate(4096, &address).ok());
    CHECK(own.gpu.Allocate(4096, &address).code() == kGpuOutOfMemory);
    CHECK(own.gpu.Allocate(4096, &address).ok());
    CHECK(own.gpu.Check().ok());
    own.gpu.Inject({.call = "Describe", .code = kGpuIllegalAddress, .is_sticky = true});
    GpuAllocation allocation;
    CHECK(own.gpu.Describe(address, &allocation).code() == kGpuIllegalAddress);
    CHECK(own.gpu.Check().code() == kGpuIllegalAddress);
    CHECK(own.gpu.Free(address).code() == kGpuIllegalAddress);
  }

  TEST_CASE("fake gpu: a platform without a driver has no devices and says why") {
    FakeGpuPlatform platform({.has_driver = false});
    std::vector<GpuDevice> devices;
    const GpuResult result = platform.ListDevices(&devices);
    CHECK(result.code() == kGpuNoDriver);
    CHECK(result.text().find("driver") != std::string::npos);
    FakeGpuPlatform two;
    CHECK(two.ListDevices(&devices).ok());
    CHECK(devices.size() == 2);
  }
}

}  // namespace
}  // namespace specd
