// Checks of kernels that use another process's memory and events, and of a CPU that sees their
// stores (docs/GPU.md, "Memory between processes").
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <vector>

#include "tests/gpu/attach/scenarios.h"
#include "tests/gpu/attach/scene.h"

namespace specd {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kWordBytes = sizeof(uint64_t);
constexpr uint64_t kLaunched = 8;  // the first word of a launch on a page

// Reads memory of the peer, and stores into another allocation of the peer, with a kernel of ours.
void ReadImported(Scene& scene, GpuMemoryKind kind) {
  const uint64_t size_bytes = 4 * kMiB;
  const uint64_t edge = kMiB + 3 * kWordBytes;  // the words before it and after it differ
  const uint64_t place = kMiB + 5 * kWordBytes;
  const PeerMemory source = scene.MemoryOfPeer(kind, size_bytes, 0x11);
  scene.Ask({.op = PeerOp::kFill,
             .address = source.address_there + edge,
             .size_bytes = size_bytes - edge,
             .value = 0x22});
  const PeerMemory target = scene.MemoryOfPeer(kind, size_bytes, 0);
  GpuMapping from;
  GpuMapping to;
  ExpectOk(scene.gpu().Import(source.import(), &from), "importing");
  ExpectOk(scene.gpu().Import(target.import(), &to), "importing");
  // From the second word to the one before the last.
  scene.Launch({.words = to.address + place,
                .memory = from.address + kWordBytes,
                .size_bytes = size_bytes - 2 * kWordBytes,
                .count = 1});
  ExpectOk(scene.gpu().Synchronize(scene.stream()), "running the kernel");
  const uint64_t expected =
      (edge / kWordBytes - 1) * 0x1111111111111111 +
      ((size_bytes - edge) / kWordBytes - 1) * 0x2222222222222222;  // as 64-bit sums wrap
  const auto seen = [&](uint64_t word) {
    const uint64_t address = target.address_there + place + word * kWordBytes;
    return scene.Ask({.op = PeerOp::kRead, .address = address}).value;
  };
  Expect(seen(kEnd) == kDone, "the exporter does not see what the kernel stored");
  Expect(seen(kSum) == expected,
         fmt::format("the kernel sums {:#x} and not {:#x}", seen(kSum), expected));
  Expect(seen(kUntil) == 0 && seen(kNumPeerWords) == 0, "the kernel stored beside its words");
  ExpectOk(scene.gpu().Close(from), "closing");
  ExpectOk(scene.gpu().Close(to), "closing");
  scene.Ask({.op = PeerOp::kFree, .address = source.address_there});
  scene.Ask({.op = PeerOp::kFree, .address = target.address_there});
}

}  // namespace

// Does a round's accesses to an engine's rows and its room for tokens, as small as they can be.
AttachResult CheckImportedRead(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    scene.LoadKernels();
    ReadImported(scene, GpuMemoryKind::kIpc);
    std::string kinds = "of cudaMalloc";
    const std::pair<GpuMemoryKind, const char*> others[] = {
        {GpuMemoryKind::kVmm, ", with a descriptor"}, {GpuMemoryKind::kPool, ", of a pool"}};
    for (const auto& [kind, name] : others) {
      if (!scene.HasPeerMemory(kind)) continue;
      ReadImported(scene, kind);
      kinds += name;
    }
    return AttachResult{.detail = fmt::format("sums and stores in memory {}", kinds)};
  });
}

// Tests stores of a running kernel. Answers of rounds and the words of staged rounds depend on
// them.
AttachResult CheckKernelStore(const AttachSetting& setting) {
  return PlayScene(setting, [&](Scene& scene) {
    constexpr uint64_t kPerBatch = 50;
    scene.LoadKernels();
    SharedWords words(&scene.gpu());
    const uint64_t count = setting.num_batches * kPerBatch;
    scene.Launch({.kernel = PeerKernel::kEcho, .words = words.at(kLaunched), .count = count});
    std::vector<double> microseconds;
    auto start = Clock::now();
    for (uint64_t value = 1; value <= count; ++value) {
      Expect(scene.Await([&] { return words.Load(kLaunched + kProgress) >= value; }),
             fmt::format("the CPU does not see store {} of a kernel that runs", value));
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      if (value > 1) microseconds.push_back(took.count());
      Expect(words.Load(kLaunched + kProgress) == value && !scene.IsIdle(),
             "the kernel does not wait for the CPU");
      start = Clock::now();
      words.Store(kLaunched + kUntil, value);
    }
    Expect(scene.Await([&] { return scene.IsIdle(); }), "the kernel does not end");
    Expect(words.Load(kLaunched + kEnd) == kDone, "the kernel ran out of time");
    const double p50 = Percentile(microseconds, 0.5);
    const double p99 = Percentile(microseconds, 0.99);
    return AttachResult{
        .detail = fmt::format("CPU to kernel to CPU: p50 {:.1f} us, p99 {:.1f} us of {}", p50, p99,
                              microseconds.size()),
        .figures = {{"p50_us", p50}, {"p99_us", p99}}};
  });
}

}  // namespace specd
