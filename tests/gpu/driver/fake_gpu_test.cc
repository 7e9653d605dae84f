// What the pretended GPU reports or refuses, and what CUDA leaves undefined. The rules of order are
// those of <cuda.h> at cuStreamWaitValue, cuEventRecord and cuStreamWaitEvent. What CUDA promises
// of two processes are checks of tests/gpu/attach, which the pretended GPU passes.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/support/gpu_peer.h"

namespace specd {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Exported {
  PeerReply reply;
  GpuImport import() const { return {GpuMemoryKind::kIpc, reply.handle}; }
};

// Memory of the peer, filled with `value`, and the description that the peer sends.
Exported ExportFrom(GpuPeer& peer, uint64_t size_bytes, uint64_t value) {
  const PeerReply made = peer.Call({.op = PeerOp::kAllocate, .size_bytes = size_bytes});
  REQUIRE(made.code == kGpuOk);
  REQUIRE(peer.Call({.op = PeerOp::kFill,
                     .address = made.address,
                     .size_bytes = size_bytes,
                     .value = value})
              .code == kGpuOk);
  const Exported exported = {peer.Call({.op = PeerOp::kExport, .address = made.address})};
  REQUIRE(exported.reply.code == kGpuOk);
  return exported;
}

struct OwnGpu {
  OwnGpu() : gpu(FakeGpuOptions(), 0) { REQUIRE(gpu.CreateStream(&stream).ok()); }

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

// A page of words that the device can reach.
struct Words {
  explicit Words(GpuContext* context) : gpu(context), fd(memfd_create("words", MFD_CLOEXEC)) {
    REQUIRE(ftruncate(fd.get(), 4096) == 0);
    void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(page != MAP_FAILED);
    host = static_cast<uint64_t*>(page);
    REQUIRE(gpu->RegisterHost(host, 4096, &device).ok());
  }
  ~Words() {
    (void)gpu->UnregisterHost(host);
    munmap(host, 4096);
  }
  GpuAddress at(size_t i) const { return device + i * sizeof(uint64_t); }
  uint64_t Load(size_t i) const { return __atomic_load_n(host + i, __ATOMIC_ACQUIRE); }
  void Store(size_t i, uint64_t value) { __atomic_store_n(host + i, value, __ATOMIC_RELEASE); }

  GpuContext* gpu;
  UniqueFd fd;
  uint64_t* host = nullptr;
  GpuAddress device = 0;
};

struct Gpu {
  explicit Gpu(const FakeGpuOptions& options = {}) : gpu(options, 0), words(&gpu) {
    REQUIRE(gpu.CreateStream(&stream).ok());
  }
  GpuResult Wait(GpuStream on, size_t word, uint64_t value, GpuWord width = GpuWord::k64) {
    return gpu.WaitValue(on, words.at(word), width, value);
  }
  GpuResult Write(GpuStream on, size_t word, uint64_t value, GpuWord width = GpuWord::k64) {
    return gpu.WriteValue(on, words.at(word), width, value);
  }
  bool IsIdle(GpuStream which) { return gpu.Query(which).code() != kGpuNotReady; }

  FakeGpuContext gpu;
  Words words;
  GpuStream stream;
};

TEST_SUITE("process") {
  TEST_CASE("fake gpu: freed under an importer, memory is poison, and both are told") {
    GpuPeer peer;
    OwnGpu own;
    const Exported exported = ExportFrom(peer, 4096, 1);
    GpuMapping mapping;
    REQUIRE(own.gpu.Import(exported.import(), &mapping).ok());
    CHECK(peer.Call({.op = PeerOp::kFree, .address = exported.reply.address}).code == kGpuOk);
    CHECK(peer.Call({.op = PeerOp::kCountViolations}).value == 1);
    CHECK(own.gpu.violations().empty());
    CHECK(own.ByteAt(mapping.address) == FakeGpuBlock::kPoison);
    CHECK(own.gpu.violations().size() == 1);
    // Closed first, the free is in order.
    const Exported orderly = ExportFrom(peer, 12288, 1);
    REQUIRE(own.gpu.Import(orderly.import(), &mapping).ok());
    CHECK(own.gpu.Close(mapping).ok());
    CHECK(peer.Call({.op = PeerOp::kFree, .address = orderly.reply.address}).code == kGpuOk);
    CHECK(peer.Call({.op = PeerOp::kCountViolations}).value == 1);
  }

  TEST_CASE("fake gpu: an address that is allocated again is another buffer") {
    GpuPeer peer;
    OwnGpu own;
    const Exported old = ExportFrom(peer, 4096, 1);
    GpuMapping mapping;
    REQUIRE(own.gpu.Import(old.import(), &mapping).ok());
    CHECK(peer.Call({.op = PeerOp::kFree, .address = old.reply.address}).code == kGpuOk);
    const Exported again = ExportFrom(peer, 4096, 2);
    CHECK(again.reply.address == old.reply.address);
    CHECK(again.reply.buffer_id != old.reply.buffer_id);
    CHECK(again.reply.handle != old.reply.handle);
    // The mapping that is still open at that address is in the way, as in the driver.
    GpuMapping next;
    CHECK(own.gpu.Import(again.import(), &next).code() == kGpuAlreadyMapped);
    CHECK(own.gpu.Close(mapping).ok());
    REQUIRE(own.gpu.Import(again.import(), &next).ok());
    CHECK(own.ByteAt(next.address) == 2);
  }

  TEST_CASE("fake gpu: memory of a dead exporter is not to be used") {
    GpuPeer peer;
    OwnGpu own;
    const Exported exported = ExportFrom(peer, 4096, 1);
    GpuMapping mapping;
    REQUIRE(own.gpu.Import(exported.import(), &mapping).ok());
    own.ByteAt(mapping.address);
    CHECK(own.gpu.violations().empty());
    peer.Kill();
    own.ByteAt(mapping.address);
    CHECK(own.gpu.violations().size() == 1);
    CHECK(own.gpu.Close(mapping).ok());
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
}

TEST_SUITE("unit") {
  TEST_CASE("fake gpu: a wait compares as counters that wrap, in the word's width") {
    Gpu own;
    const auto wait = [&](uint64_t word, uint64_t value, GpuWord width) {
      own.words.Store(0, word);
      REQUIRE(own.Wait(own.stream, 0, value, width).ok());
    };
    const auto passes = [&](uint64_t word, uint64_t value, GpuWord width) {
      wait(word, value, width);
      return own.gpu.Synchronize(own.stream).ok();
    };
    const auto holds = [&](uint64_t word, uint64_t value, GpuWord width) {
      wait(word, value, width);
      for (int i = 0; i < 100 && !own.IsIdle(own.stream); ++i) std::this_thread::yield();
      const bool is_held = !own.IsIdle(own.stream);
      own.words.Store(0, value);
      REQUIRE(own.gpu.Synchronize(own.stream).ok());
      return is_held;
    };
    CHECK(passes(5, 5, GpuWord::k64));
    CHECK(passes(6, 5, GpuWord::k64));
    CHECK(holds(4, 5, GpuWord::k64));
    CHECK(passes(2, ~uint64_t{0}, GpuWord::k64));  // 2 is 3 behind 2^64 - 1
    CHECK(holds(~uint64_t{0}, 2, GpuWord::k64));
    CHECK(passes(1, 0xffffffff, GpuWord::k32));  // wraps at 32 bits
    CHECK(holds(1, 0xffffffff, GpuWord::k64));
    CHECK(passes(0xffffffff00000003, 3, GpuWord::k32));  // the upper half is another word's
  }

  TEST_CASE("fake gpu: a 32-bit write leaves its neighbour alone") {
    Gpu own;
    own.words.Store(0, 0x1111111122222222);
    REQUIRE(own.Write(own.stream, 0, 0xabcdef0133333333, GpuWord::k32).ok());
    REQUIRE(own.gpu.Synchronize(own.stream).ok());
    CHECK(own.words.Load(0) == 0x1111111133333333);
  }

  TEST_CASE("fake gpu: words lie in registered memory, at the device's address for it") {
    Gpu own;
    CHECK(own.words.device != reinterpret_cast<uintptr_t>(own.words.host));
    const auto host_address = reinterpret_cast<uintptr_t>(own.words.host);
    CHECK(own.gpu.WaitValue(own.stream, host_address, GpuWord::k64, 1).code() == kGpuInvalidValue);
    CHECK(own.gpu.WriteValue(own.stream, own.words.device + 4096, GpuWord::k64, 1).code() ==
          kGpuInvalidValue);
    CHECK(own.gpu.WriteValue(own.stream, own.words.device + 4, GpuWord::k64, 1).code() ==
          kGpuInvalidValue);
    CHECK(own.gpu.WriteValue(own.stream, own.words.device + 4, GpuWord::k32, 1).ok());
    CHECK(own.gpu.Synchronize(own.stream).ok());
    GpuAddress again = 0;
    CHECK(own.gpu.RegisterHost(own.words.host, 4096, &again).code() ==
          kGpuHostMemoryAlreadyRegistered);
    CHECK(own.gpu.RegisterHost(own.words.host, 100, &again).code() == kGpuInvalidValue);
    CHECK(own.gpu.UnregisterHost(&again).code() == kGpuHostMemoryNotRegistered);

    FakeGpuOptions narrow;
    narrow.devices[0].has_64_bit_words = false;
    Gpu old(narrow);
    CHECK(old.Write(old.stream, 0, 1, GpuWord::k64).code() == kGpuNotSupported);
    CHECK(old.Write(old.stream, 0, 1, GpuWord::k32).ok());
    CHECK(old.gpu.Synchronize(old.stream).ok());
  }

  TEST_CASE("fake gpu: an event that was never recorded is waited for by nobody") {
    Gpu own;
    GpuStream other;
    GpuEvent event;
    REQUIRE(own.gpu.CreateStream(&other).ok());
    REQUIRE(own.gpu.CreateEvent(&event).ok());
    REQUIRE(own.gpu.WaitEvent(other, event).ok());
    REQUIRE(own.gpu.Synchronize(other).ok());
    // A wait includes a record that was called, even if its CUDA stream is held up.
    REQUIRE(own.Wait(own.stream, 0, 1).ok());
    REQUIRE(own.gpu.RecordEvent(event, own.stream).ok());
    REQUIRE(own.gpu.WaitEvent(other, event).ok());
    REQUIRE(own.Write(other, 1, 1).ok());
    // A record that is called after the wait is none of its business.
    REQUIRE(own.Wait(own.stream, 0, 2).ok());
    REQUIRE(own.gpu.RecordEvent(event, own.stream).ok());
    CHECK_FALSE(own.IsIdle(other));
    own.words.Store(0, 1);
    REQUIRE(own.gpu.Synchronize(other).ok());
    CHECK(own.words.Load(1) == 1);
    CHECK_FALSE(own.IsIdle(own.stream));
    own.words.Store(0, 2);
    REQUIRE(own.gpu.Synchronize(own.stream).ok());
  }

  TEST_CASE("fake gpu: a function of the host that calls the driver is reported") {
    Gpu own;
    const auto check = [](void* gpu) { (void)static_cast<FakeGpuContext*>(gpu)->Check(); };
    REQUIRE(own.gpu.LaunchHostFunction(own.stream, check, &own.gpu).ok());
    REQUIRE(own.gpu.Synchronize(own.stream).ok());
    CHECK(own.gpu.violations().size() == 1);
    CHECK(own.gpu.Check().ok());
  }

  TEST_CASE("fake gpu: copies stay inside device memory") {
    Gpu own;
    GpuAddress address = 0;
    REQUIRE(own.gpu.Allocate(4096, &address).ok());
    char bytes[64] = {};
    CHECK(own.gpu.Copy(own.stream, reinterpret_cast<void*>(address + 4032), bytes, 64).ok());
    CHECK(own.gpu.Synchronize(own.stream).ok());
    CHECK(own.gpu.Copy(own.stream, reinterpret_cast<void*>(address + 4033), bytes, 64).code() ==
          kGpuInvalidValue);
    CHECK(own.gpu.Copy(own.stream, bytes, reinterpret_cast<void*>(address + 4033), 64).code() ==
          kGpuInvalidValue);
  }
}

}  // namespace
}  // namespace specd
