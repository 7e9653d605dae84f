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

// Replays a CUDA graph that waits for an event of another process, and records an event that the
// other process waits for. CUDA does not say whether an interprocess event may be such a node.
AttachResult CheckGraphEvents(const AttachSetting& setting) {
  return PlayScene(setting, [&](Scene& scene) {
    NeedWords(scene);
    NeedEvents(scene);
    constexpr uint64_t kTheirs = 1;  // the peer's events, counted from the last
    scene.LoadKernels();
    SharedWords words(&scene.gpu());
    scene.Ask({.op = PeerOp::kWords}, words.fd());
    GpuEvent theirs;
    GpuEvent ours;
    GpuHandle handle;
    ExpectOk(scene.gpu().OpenEvent(scene.Ask({.op = PeerOp::kCreateEvent}).handle, &theirs),
             "opening an event");
    ExpectOk(scene.gpu().CreateSharedEvent(&ours), "making an event");
    ExpectOk(scene.gpu().ExportEvent(ours, &handle), "exporting an event");
    scene.Ask({.op = PeerOp::kOpenEvent, .handle = handle});
    std::function<GpuResult()> replay;
    const auto refused = [](const char* what, const GpuResult& why) {
      return AttachResult{AttachStatus::kObserved,
                          fmt::format("{}: {}", what, why.text()),
                          {{"refusal_code", why.code()}}};
    };
    const auto num_runs = [&] { return words.Load(kLaunched + kProgress); };
    GpuResult result = setting.gpu->Capture(
        scene.stream(), theirs, {.words = words.at(kLaunched), .count = 1}, ours, &replay);
    if (!result.ok()) return refused("no graph takes such events", result);
    // A word holds up the peer's record, so the graph has nothing to do before we store the word.
    scene.Ask({.op = PeerOp::kWaitValue, .word = 0, .value = 1});
    scene.Ask({.op = PeerOp::kRecordEvent, .word = kTheirs});
    result = replay();
    if (!result.ok()) return refused("a graph with such events is not launched", result);
    const bool waits = !scene.Await([&] { return num_runs() == 1; }, setting.held_up_ms);
    words.Store(0, 1);
    Expect(scene.Await([&] { return scene.IsIdle() && num_runs() == 1; }),
           "the graph does not come through");
    // The other way round: a word holds up our CUDA stream, and with it the record of the second
    // replay.
    words.Store(kLaunched + kProgress, 0);
    ExpectOk(scene.gpu().WaitValue(scene.stream(), words.at(1), GpuWord::k64, 1), "waiting");
    ExpectOk(replay(), "launching the graph again");
    scene.Ask({.op = PeerOp::kWaitEvent});
    scene.Ask({.op = PeerOp::kWriteValue, .word = 2, .value = 1});
    const bool records = !scene.Await([&] { return words.Load(2) == 1; }, setting.held_up_ms);
    Expect(num_runs() == 0, "the second replay does not wait for our stream");
    words.Store(1, 1);
    Expect(scene.Await([&] { return scene.IsIdle() && num_runs() == 1 && words.Load(2) == 1; }),
           "the second replay does not come through");
    ExpectOk(scene.gpu().Check(), "afterwards");
    return AttachResult{
        AttachStatus::kObserved,
        fmt::format("a replay {} the other process's record; the other process {} a replay's",
                    waits ? "waits for" : "does not wait for",
                    records ? "waits for" : "does not wait for"),
        {{"waits", waits ? 1.0 : 0.0}, {"records", records ? 1.0 : 0.0}, {"refusal_code", 0}}};
  });
}

}  // namespace specd
