// Checks in which either process is killed (docs/ARCHITECTURE.md, "Ownership and death").
#include <fmt/format.h>

#include <chrono>

#include "tests/gpu/attach/scenarios.h"
#include "tests/gpu/attach/scene.h"

namespace specd {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

double KillAndTimeMs(Scene& scene) {
  const auto start = std::chrono::steady_clock::now();
  scene.peer().Kill();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  return took.count();
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
