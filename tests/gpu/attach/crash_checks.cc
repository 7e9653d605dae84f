// Checks in which either process is killed (docs/ARCHITECTURE.md, "Ownership and death").
#include <fmt/format.h>

#include <chrono>

#include "tests/gpu/attach/scenarios.h"
#include "tests/gpu/attach/scene.h"

namespace specd {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kReadsAfterwards = 20;
// First words of launches on a page.
constexpr uint64_t kOurs = 8;
constexpr uint64_t kTheirs = 16;

double KillAndTimeMs(Scene& scene) {
  const auto start = std::chrono::steady_clock::now();
  scene.peer().Kill();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  return took.count();
}

// kGpuNotReady if our CUDA stream does not come to its end.
GpuResult EndOfStream(Scene& scene) {
  GpuResult result = GpuResult::Ok();
  (void)scene.Await([&] {
    result = scene.gpu().Query(scene.stream());
    return result.code() != kGpuNotReady;
  });
  return result;
}

}  // namespace

// CUDA says nothing of memory whose exporter is gone, so every answer is written down.
AttachResult CheckExporterKilled(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    const PeerMemory memory = scene.MemoryOfPeer(GpuMemoryKind::kIpc, 4 * kMiB, 0x66);
    GpuMapping mapping;
    ExpectOk(scene.gpu().Import(memory.import(), &mapping), "importing");
    Expect(scene.ByteAt(mapping.address) == 0x66, "the bytes are others");
    const double gone_ms = KillAndTimeMs(scene);
    uint8_t byte = 0;
    GpuResult read =
        scene.gpu().Copy(scene.stream(), &byte, reinterpret_cast<void*>(mapping.address), 1);
    if (read.ok()) read = scene.gpu().Synchronize(scene.stream());
    const GpuResult closed = scene.gpu().Close(mapping);
    const GpuResult after = scene.gpu().Check();
    return AttachResult{
        AttachStatus::kObserved,
        fmt::format(
            "reading: {}{}; closing: {}; the context afterwards: {}", read.code(),
            read.ok() ? (byte == 0x66 ? ", the bytes are still there" : ", other bytes") : "",
            closed.code(), after.code()),
        {{"read_code", read.code()},
         {"close_code", closed.code()},
         {"context_code", after.code()},
         {"exporter_gone_ms", gone_ms}}};
  });
}

// As above, but a kernel reads that memory over and over when the exporter dies.
AttachResult CheckExporterKilledInRead(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    scene.LoadKernels();
    const uint64_t size_bytes = 4 * kMiB;
    const PeerMemory memory = scene.MemoryOfPeer(GpuMemoryKind::kIpc, size_bytes, 0x66);
    GpuMapping mapping;
    ExpectOk(scene.gpu().Import(memory.import(), &mapping), "importing");
    SharedWords words(&scene.gpu());
    scene.Launch({.words = words.at(kOurs), .memory = mapping.address, .size_bytes = size_bytes});
    const auto reads = [&] { return words.Load(kOurs + kProgress); };
    Expect(scene.Await([&] { return reads() >= 2; }), "the kernel does not read");
    const double gone_ms = KillAndTimeMs(scene);
    const uint64_t at_kill = reads();
    (void)scene.Await([&] {
      return reads() >= at_kill + kReadsAfterwards ||
             scene.gpu().Query(scene.stream()).code() != kGpuNotReady;
    });
    const uint64_t afterwards = reads() - at_kill;
    words.Store(kOurs + kUntil, 1);
    const GpuResult end = EndOfStream(scene);
    const uint64_t others = words.Load(kOurs + kOthers);
    // Closing waits for a kernel that does not end.
    const GpuResult closed = end.code() == kGpuNotReady ? end : scene.gpu().Close(mapping);
    const GpuResult after = scene.gpu().Check();
    return AttachResult{
        AttachStatus::kObserved,
        fmt::format("{} reads after it was gone, {} of all gave other bytes; the stream: {}; "
                    "closing: {}; the context afterwards: {}",
                    afterwards, others, end.code(), closed.code(), after.code()),
        {{"reads_afterwards", static_cast<double>(afterwards)},
         {"other_reads", static_cast<double>(others)},
         {"stream_code", end.code()},
         {"close_code", closed.code()},
         {"context_code", after.code()},
         {"exporter_gone_ms", gone_ms}}};
  });
}

// NVIDIA's MPS guide does not say what happens to the other clients of a server then.
AttachResult CheckClientKilled(const AttachSetting& setting) {
  return PlayScene(setting, [&](Scene& scene) {
    if (!setting.device.has_mps.value_or(false)) {
      throw SceneOver{AttachStatus::kSkipped, "this process is no client of MPS"};
    }
    scene.LoadKernels();
    SharedWords words(&scene.gpu());
    scene.Ask({.op = PeerOp::kWords}, words.fd());
    scene.Ask({.op = PeerOp::kLoadKernel, .launch = {.kernel = PeerKernel::kEcho}});
    GpuAddress own = 0;
    ExpectOk(scene.gpu().Allocate(kMiB, &own), "allocating");
    const PeerLaunch read = {.words = words.at(kOurs), .memory = own, .size_bytes = kMiB};
    scene.Launch(read);
    scene.Ask({.op = PeerOp::kLaunch,
               .word = kTheirs,
               .launch = {.kernel = PeerKernel::kEcho, .count = 1}});
    const auto reads = [&] { return words.Load(kOurs + kProgress); };
    Expect(scene.Await([&] { return reads() > 0 && words.Load(kTheirs + kProgress) == 1; }),
           "the two kernels do not run");
    const double gone_ms = KillAndTimeMs(scene);
    Expect(words.Load(kTheirs + kEnd) == kRuns, "its kernel had ended before it was killed");
    const uint64_t at_kill = reads();
    const bool reads_on = scene.Await([&] { return reads() >= at_kill + kReadsAfterwards; });
    words.Store(kOurs + kUntil, 1);
    const GpuResult end = EndOfStream(scene);
    GpuResult next = end;
    if (end.ok()) next = setting.gpu->Launch(scene.stream(), read);
    if (next.ok()) next = EndOfStream(scene);
    const GpuResult after = scene.gpu().Check();
    return AttachResult{
        AttachStatus::kObserved,
        fmt::format("our kernel {}; our stream: {}; a launch afterwards: {}; the context: {}",
                    reads_on ? "went on" : "stood still", end.code(), next.code(), after.code()),
        {{"went_on", reads_on ? 1.0 : 0.0},
         {"stream_code", end.code()},
         {"launch_code", next.code()},
         {"context_code", after.code()},
         {"client_gone_ms", gone_ms}}};
  });
}

AttachResult CheckWriterKilled(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    SharedWords words(&scene.gpu());
    scene.Ask({.op = PeerOp::kWords}, words.fd());
    ExpectOk(scene.gpu().WaitValue(scene.stream(), words.at(0), GpuWord::k64, 1), "waiting");
    scene.peer().Kill();
    Expect(!scene.IsIdle(), "our stream does not wait for a dead process");
    words.Store(0, ~uint64_t{0} >> 1);
    Expect(scene.Await([&] { return scene.IsIdle(); }), "a store does not release our stream");
    ExpectOk(scene.gpu().Check(), "afterwards");
    return AttachResult{.detail = "released by a store of this process"};
  });
}

AttachResult CheckImporterKilled(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    SharedWords words(&scene.gpu());
    scene.Ask({.op = PeerOp::kWords}, words.fd());
    GpuAddress own = 0;
    GpuExport exported;
    ExpectOk(scene.gpu().Allocate(kMiB, &own), "allocating");
    ExpectOk(scene.gpu().Export(own, GpuMemoryKind::kIpc, &exported), "exporting");
    scene.Ask({.op = PeerOp::kImport, .size_bytes = kMiB, .handle = exported.handle});
    scene.Ask({.op = PeerOp::kWaitValue, .word = 0, .value = 1});
    const double gone_ms = KillAndTimeMs(scene);
    // Neither the peer's import nor its waiting CUDA stream hinders us.
    scene.ByteAt(own);
    ExpectOk(scene.gpu().WriteValue(scene.stream(), words.at(1), GpuWord::k64, 5), "writing");
    Expect(scene.Await([&] { return words.Load(1) == 5; }), "our stream is held up");
    ExpectOk(scene.gpu().Free(own), "freeing");
    ExpectOk(scene.gpu().Check(), "afterwards");
    return AttachResult{.detail = fmt::format("its process was gone after {:.1f} ms", gone_ms),
                        .figures = {{"importer_gone_ms", gone_ms}}};
  });
}

}  // namespace specd
